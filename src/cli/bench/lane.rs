//! A thread with a runtime of its own, of which the kernel says how much CPU it took: what is measured runs there, and
//! everything else beside it.

use std::future::Future;
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::task;

/// Ends its thread, and all tasks on it, when it is dropped.
pub struct Lane {
    handle: Handle,
    end: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Lane {
    pub fn start(name: &'static str) -> anyhow::Result<Lane> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let thread = task::thread(name, move || {
            runtime.block_on(async { drop(ended.await) });
            runtime.shutdown_background();
        })
        .with_context(|| format!("thread {name} cannot be started"))?;
        Ok(Lane { handle, end: Some(end), thread: Some(thread) })
    }

    /// Runs `work` on this thread and waits for it. Tasks that it starts go on there.
    pub async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> anyhow::Result<T> {
        self.begin(work).await.context("what was measured ended before it had an answer")
    }

    /// Runs `work` on this thread; the answer comes through the channel.
    pub fn begin<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> oneshot::Receiver<T> {
        let (answer, answered) = oneshot::channel();
        let _inside = self.handle.enter();
        task::spawn("bench lane", async move { drop(answer.send(work.await)) });
        answered
    }

    /// User and system time of this thread since it began.
    pub async fn cpu(&self) -> anyhow::Result<Duration> {
        self.run(async { thread_cpu() }).await?
    }

    /// How often this thread has waited since it began, and so been woken.
    pub async fn wakeups(&self) -> anyhow::Result<u64> {
        let usage = self.run(async { getrusage(UsageWho::RUSAGE_THREAD) }).await??;
        Ok(usage.voluntary_context_switches().unsigned_abs())
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // A panic in it was told where it happened.
            let _ = thread.join();
        }
    }
}

/// Of the thread that asks.
fn thread_cpu() -> anyhow::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD)?;
    let microseconds = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(microseconds.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn cpu_is_that_of_the_lane_alone() {
        let (busy, idle) = (Lane::start("busy").unwrap(), Lane::start("idle").unwrap());
        let worked = async {
            let begun = thread_cpu().unwrap();
            let mut sum = 0_u64;
            while thread_cpu().unwrap() - begun < Duration::from_millis(20) {
                sum = sum.wrapping_add(1);
            }
            sum
        };
        assert!(busy.run(worked).await.unwrap() > 0);
        assert!(busy.cpu().await.unwrap() >= Duration::from_millis(20));
        assert!(idle.cpu().await.unwrap() < busy.cpu().await.unwrap());
    }
}
