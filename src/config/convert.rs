//! From settings to the options of lower layers, which know nothing of settings.

use std::path::PathBuf;

use crate::calendar;
use crate::change::Limits;
use crate::lease::WorkerId;
use crate::redis::{self, ConnectOptions, Tls, TlsOptions};
use crate::reduce::Rules;
use crate::worker;

use super::check::NAME_BYTES_MAX;
use super::{Config, Redis, Secret, Worker};

impl Config {
    /// What a change may be, as workers and writers judge it.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits {
            field_bytes_max: self.change.field_bytes_max,
            fields_max: self.change.fields_max,
            strict: self.worker.strict_fields,
        }
    }

    /// How changes become views.
    #[must_use]
    pub fn rules(&self) -> Rules {
        Rules {
            limits: self.limits(),
            calendar: calendar::Calendar {
                horizon_days: self.calendar.horizon_days,
                time_zone: self.calendar.time_zone.time_zone().clone(),
                leap_day: self.calendar.leap_day,
                notify_at: self.calendar.notify_at.time(),
                day_grace: self.calendar.day_grace,
            },
            dedup_window: self.worker.dedup_window,
            producer_retention: self.worker.producer_retention,
            tombstone_retention: self.worker.tombstone_retention,
            log_length_max: self.log.length_max,
            dead_letters_max: self.worker.dead_letters_max,
            top_max: self.profile.top_max,
            profile_fields_max: self.profile.fields_max,
            profile_ttl: Some(self.profile.ttl).filter(|ttl| !ttl.is_zero()),
            profile_keep: self.profile.keep.clone(),
        }
    }
}

impl Worker {
    /// The bounds of one worker's work, for a worker with this id.
    #[must_use]
    pub fn options(&self, worker: WorkerId) -> worker::Options {
        worker::Options {
            worker,
            batch_changes_max: self.batch_changes_max,
            batch_bytes_max: self.batch_bytes_max,
            block: self.block,
            lease_ttl: self.lease_ttl,
            heartbeat: self.heartbeat,
            roll_share: f64::from(self.roll_percent) / 100.0,
            retention: self.retention,
            trim_interval: self.trim_interval,
            shutdown_grace: self.shutdown_grace,
            backoff_min: self.backoff_min,
            backoff_max: self.backoff_max,
            wait_replicas: self.wait_replicas,
            outbox_max: self.outbox_max,
            deliveries_max: self.deliveries_max,
        }
    }

    /// An id that no other process has or had: the name or the host's, the process, and a random part.
    #[must_use]
    pub fn id(&self) -> WorkerId {
        let host = nix::unistd::gethostname().ok().and_then(|host| host.into_string().ok());
        let name = self.name.clone().or(host).unwrap_or_default();
        let name: String = name.chars().filter(char::is_ascii_graphic).take(NAME_BYTES_MAX).collect();
        let id = format!("{name}-{}-{:08x}", std::process::id(), rand::random::<u32>());
        id.parse().expect("short, without control characters and spaces")
    }
}

impl Redis {
    /// How to connect, with certificates read.
    ///
    /// # Errors
    ///
    /// Where a certificate or key file cannot be used.
    pub fn connect_options(&self) -> Result<ConnectOptions, redis::Error> {
        Ok(ConnectOptions {
            seeds: self.nodes.clone(),
            username: self.username.clone(),
            password: self.password.as_ref().map(|password: &Secret| password.reveal().to_owned()),
            tls: if self.tls { Some(Tls::load(&self.tls_options())?) } else { None },
            connect_timeout: self.connect_timeout,
            reply_timeout: self.reply_timeout,
            address_map: self.address_map.clone(),
            ..ConnectOptions::default()
        })
    }

    fn tls_options(&self) -> TlsOptions {
        TlsOptions {
            ca_file: self.tls_ca_file.as_ref().map(PathBuf::from),
            server_name: self.tls_server_name.clone(),
            certificate_file: self.tls_certificate_file.as_ref().map(PathBuf::from),
            key_file: self.tls_key_file.as_ref().map(PathBuf::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{NotifyAt, Zone};

    #[test]
    fn defaults_of_the_settings_are_those_of_the_rules() {
        // Neither type can be compared; both say all they hold when they are printed.
        assert_eq!(format!("{:?}", Config::default().rules()), format!("{:?}", Rules::default()));
    }

    #[test]
    fn defaults_of_the_settings_are_those_of_the_worker() {
        let built_in = worker::Options::default();
        let options = Worker::default().options(built_in.worker.clone());
        assert_eq!(format!("{options:?}"), format!("{built_in:?}"));
    }

    #[test]
    fn every_rule_follows_its_setting() {
        let mut config = Config::default();
        config.worker.strict_fields = true;
        config.calendar.time_zone = Zone::named("Europe/Berlin").unwrap();
        config.calendar.notify_at = NotifyAt::new(7, 30);
        config.calendar.horizon_days = 30;
        config.log.length_max = 500;
        let rules = config.rules();
        assert!(rules.limits.strict);
        assert_eq!(rules.calendar.time_zone.iana_name(), Some("Europe/Berlin"));
        assert_eq!(rules.calendar.notify_at, jiff::civil::time(7, 30, 0, 0));
        assert_eq!((rules.calendar.horizon_days, rules.log_length_max), (30, 500));
    }

    #[test]
    fn worker_id_is_new_each_time_and_begins_with_its_name() {
        let named = Worker { name: Some("left".to_owned()), ..Worker::default() };
        let (first, second) = (named.id(), named.id());
        assert_ne!(first, second);
        let process = std::process::id();
        assert!(first.as_str().starts_with(&format!("left-{process}-")), "{first}");
        assert_ne!(Worker::default().id(), Worker::default().id());
    }

    #[test]
    fn every_connection_setting_reaches_the_link() {
        let settings = Redis {
            nodes: vec!["a:1".parse().unwrap()],
            username: Some("heyday".to_owned()),
            password: Some(Secret::new("hunter2")),
            connect_timeout: std::time::Duration::from_secs(3),
            reply_timeout: std::time::Duration::from_secs(4),
            address_map: [("b:2".parse().unwrap(), "c:3".parse().unwrap())].into(),
            ..Redis::default()
        };
        let options = settings.connect_options().unwrap();
        assert_eq!(options.seeds, settings.nodes);
        assert_eq!((options.username.as_deref(), options.password.as_deref()), (Some("heyday"), Some("hunter2")));
        assert_eq!(options.address_map, settings.address_map);
        assert_eq!(options.connect_timeout, settings.connect_timeout);
        assert_eq!(options.reply_timeout, settings.reply_timeout);
        assert!(options.tls.is_none());
    }

    #[test]
    fn missing_certificate_authority_is_named() {
        let settings = Redis { tls: true, tls_ca_file: Some("absent.pem".to_owned()), ..Redis::default() };
        let error = settings.connect_options().map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("absent.pem"), "{error}");
    }
}
