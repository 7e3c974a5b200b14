//! From settings to the options of the client's parts.

use std::collections::BTreeSet;

use crate::change::UserId;
use crate::client::{near, reader, subscriber, writer};
use crate::shard::Shard;

use super::Config;

impl Config {
    #[must_use]
    pub fn reader(&self) -> reader::Options {
        let calendar = self.rules().calendar;
        let (timeout, fresh_within) = (self.reader.timeout, self.reader.fresh_within);
        reader::Options { timeout, fresh_within, calendar, profile_keep: self.profile.keep.clone() }
    }

    #[must_use]
    pub fn near(&self) -> near::Options {
        near::Options {
            reader: self.reader(),
            entries_max: self.near.entries_max,
            bytes_max: self.near.bytes_max,
            patience: self.near.patience,
            reread_after: self.near.reread_after,
            poll_interval: self.subscriber.poll_interval,
            poll_interval_degraded: self.subscriber.poll_interval_degraded,
            ..near::Options::default()
        }
    }

    #[must_use]
    pub fn writer(&self) -> writer::Options {
        writer::Options {
            timeout: self.writer.timeout,
            queue_changes_max: self.writer.queue_changes_max,
            batch_changes_max: self.writer.batch_changes_max,
            limits: self.limits(),
        }
    }

    /// For what is changed of these users and in these shards; none of either for all.
    #[must_use]
    pub fn subscriber(&self, users: BTreeSet<UserId>, shards: BTreeSet<Shard>) -> subscriber::Options {
        subscriber::Options {
            users: Some(users).filter(|users| !users.is_empty()),
            shards: Some(shards).filter(|shards| !shards.is_empty()),
            poll_interval: self.subscriber.poll_interval,
            poll_interval_degraded: self.subscriber.poll_interval_degraded,
            ..subscriber::Options::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn settings_and_parts_have_the_same_defaults() {
        let config = Config::default();
        let subscriber = config.subscriber(BTreeSet::new(), BTreeSet::new());
        assert_eq!(format!("{:?}", config.reader()), format!("{:?}", reader::Options::default()));
        assert_eq!(format!("{:?}", config.near()), format!("{:?}", near::Options::default()));
        assert_eq!(format!("{:?}", config.writer()), format!("{:?}", writer::Options::default()));
        assert_eq!(format!("{subscriber:?}"), format!("{:?}", subscriber::Options::default()));
    }

    #[test]
    fn every_setting_of_a_part_reaches_it() {
        let mut config = Config::default();
        config.reader.timeout = Duration::from_secs(7);
        config.reader.fresh_within = Duration::from_secs(8);
        config.writer.timeout = Duration::from_secs(9);
        config.writer.batch_changes_max = 10;
        config.writer.queue_changes_max = 11;
        config.change.fields_max = 12;
        config.subscriber.poll_interval = Duration::from_secs(13);
        config.subscriber.poll_interval_degraded = Duration::from_secs(14);
        config.profile.keep = ["plan".to_owned()].into();
        config.near.entries_max = 15;
        config.near.bytes_max = 16;
        config.near.patience = Duration::from_secs(17);
        config.near.reread_after = Duration::from_secs(18);
        let (reader, writer, near) = (config.reader(), config.writer(), config.near());
        assert_eq!((&reader.profile_keep, &near.reader.profile_keep), (&config.profile.keep, &config.profile.keep));
        assert_eq!((near.entries_max, near.bytes_max), (15, 16));
        assert_eq!((near.patience.as_secs(), near.reread_after.as_secs()), (17, 18));
        assert_eq!((near.poll_interval.as_secs(), near.poll_interval_degraded.as_secs()), (13, 14));
        assert_eq!((near.reader.timeout.as_secs(), near.reader.fresh_within.as_secs()), (7, 8));
        let subscriber = config.subscriber(BTreeSet::new(), [Shard(3)].into());
        assert_eq!((reader.timeout.as_secs(), reader.fresh_within.as_secs()), (7, 8));
        assert_eq!((writer.timeout.as_secs(), writer.batch_changes_max, writer.queue_changes_max), (9, 10, 11));
        assert_eq!(writer.limits.fields_max, 12);
        assert_eq!((subscriber.poll_interval.as_secs(), subscriber.poll_interval_degraded.as_secs()), (13, 14));
        assert_eq!((subscriber.users, subscriber.shards), (None, Some([Shard(3)].into())));
    }
}
