//! The only place that starts tasks and threads: each has a name, and a panic in it is logged under that name.

use std::future::Future;

pub use tokio::task::JoinHandle;
use tracing::Instrument;

/// Runs `future` beside the caller. A panic ends this task only; it is logged here and shows in the handle too.
#[expect(clippy::disallowed_methods, reason = "everybody else comes here")]
pub fn spawn<F>(name: &'static str, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let watched = async move {
        let _witness = Witness { name };
        future.await
    };
    tokio::spawn(watched.instrument(tracing::debug_span!("task", name)))
}

/// Runs `work` on a thread of its own: for what must go on while the runtime is stuck.
pub fn thread<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<T>> {
    let watched = move || {
        let _witness = Witness { name };
        work()
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(watched)
}

/// Dropped while its task unwinds, it tells of the panic.
struct Witness {
    name: &'static str,
}

impl Drop for Witness {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(task = self.name, "a task panicked: this is a bug");
        }
    }
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn a_panic_ends_its_task_and_shows_in_the_handle() {
        let alone = super::thread("alone", || 8).unwrap();
        assert_eq!(alone.join().unwrap(), 8);
        let failed = super::spawn("doomed", async {
            assert_eq!(1, 2, "on purpose");
        });
        let sound = super::spawn("sound", async { 7 });
        assert!(failed.await.unwrap_err().is_panic());
        assert_eq!(sound.await.unwrap(), 7);
    }
}
