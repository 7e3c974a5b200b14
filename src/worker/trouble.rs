//! When the log tells of a shard's trouble: once when it begins, and not at each try.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::Disposition;

/// A node that is going fails in turn by a closed link, a refused connection and silence, and memory that is nearly full
/// lets a commit through now and then. That is one trouble: a further reason of its kind is told at most this often.
const TOLD_INTERVAL: Duration = Duration::from_secs(10);

/// One shard's trouble.
#[derive(Default)]
pub(super) struct Trouble {
    /// The reason that was told last; none where all is well or nothing was told.
    reason: Option<&'static str>,
    told: Option<(Disposition, Instant)>,
}

impl Trouble {
    /// Something failed. Answers whether to tell of it.
    pub fn is_news(&mut self, reason: &'static str, disposition: Disposition) -> bool {
        let recently = |(last, at): (Disposition, Instant)| alike(last, disposition) && at.elapsed() < TOLD_INTERVAL;
        if self.reason == Some(reason) || self.told.is_some_and(recently) {
            return false;
        }
        (self.reason, self.told) = (Some(reason), Some((disposition, Instant::now())));
        true
    }

    /// All is well. Answers the reason that was told, if one was.
    pub fn end(&mut self) -> Option<&'static str> {
        self.reason.take()
    }
}

/// Whether both are a node or a network that comes back, or both the same other thing.
fn alike(one: Disposition, other: Disposition) -> bool {
    let passes = |what| matches!(what, Disposition::Retry | Disposition::Refresh | Disposition::Ambiguous);
    one == other || (passes(one) && passes(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn reasons_that_alternate_are_told_once_in_a_while() {
        let mut trouble = Trouble::default();
        let mut told = 0;
        // A minute of a node that cannot make up its mind.
        for _ in 0..200 {
            told += u32::from(trouble.is_news("closed", Disposition::Ambiguous));
            tokio::time::advance(Duration::from_millis(100)).await;
            told += u32::from(trouble.is_news("connect", Disposition::Refresh));
            tokio::time::advance(Duration::from_millis(200)).await;
        }
        assert_eq!(told, 6);
        assert!(trouble.is_news("OOM", Disposition::Full), "another kind is told at once");
        assert_eq!((trouble.end(), trouble.end()), (Some("OOM"), None));
    }

    #[tokio::test(start_paused = true)]
    async fn trouble_that_comes_and_goes_is_told_once_in_a_while() {
        let mut trouble = Trouble::default();
        assert_eq!(trouble.end(), None);
        let (mut begun, mut ended) = (0, 0);
        for _ in 0..200 {
            begun += u32::from(trouble.is_news("OOM", Disposition::Full));
            tokio::time::advance(Duration::from_millis(150)).await;
            ended += u32::from(trouble.end().is_some());
        }
        assert_eq!((begun, ended), (3, 3), "thirty seconds");
    }

    #[tokio::test(start_paused = true)]
    async fn one_reason_is_told_once_however_long_it_lasts() {
        let mut trouble = Trouble::default();
        assert!(trouble.is_news("connect", Disposition::Refresh));
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert!(!trouble.is_news("connect", Disposition::Refresh));
        assert_eq!(trouble.end(), Some("connect"));
    }
}
