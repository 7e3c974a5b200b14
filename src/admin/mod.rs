//! The admin HTTP server: numbers, health and readiness. It has a thread and a runtime of its own, so that it answers
//! while shards are stuck.

mod page;

use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::metrics::{self, Metrics, Readiness};
use crate::task;

/// How long requests under way may take once the server is told to stop.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// What the server answers from.
#[derive(Clone, Debug)]
pub struct Shown {
    pub metrics: Metrics,
    /// The worker's name.
    pub worker: String,
}

/// One path that is served.
pub struct Endpoint {
    pub path: &'static str,
    pub what: &'static str,
    handler: fn() -> MethodRouter<Shown>,
}

/// All of them.
pub const ENDPOINTS: [Endpoint; 4] = [
    Endpoint { path: "/", what: "state and links, for a person", handler: || get(index) },
    Endpoint { path: "/metrics", what: "numbers for Prometheus", handler: || get(numbers) },
    Endpoint { path: "/healthz", what: "whether the process lives; restart it if not", handler: || get(health) },
    Endpoint { path: "/readyz", what: "whether the worker does its share of the shards", handler: || get(ready) },
];

/// Why there is no admin server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "admin.listen {address}: cannot listen there: {cause}; set admin.listen (HEYDAY_ADMIN__LISTEN) to another \
         address, or to nothing"
    )]
    Bind { address: String, cause: std::io::Error },
    #[error("admin server: cannot start its thread")]
    Start(#[source] std::io::Error),
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Listens on `address` (`host:port`; port 0 takes a free one) and serves from a thread of its own.
    ///
    /// # Errors
    ///
    /// Where the address cannot be listened on, or the thread cannot be started.
    pub fn start(address: &str, shown: Shown) -> Result<Self, Error> {
        let unbound = |cause| Error::Bind { address: address.to_owned(), cause };
        let listener = TcpListener::bind(address).map_err(unbound)?;
        listener.set_nonblocking(true).map_err(unbound)?;
        let address = listener.local_addr().map_err(unbound)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Start)?;
        let (stop, stopped) = oneshot::channel();
        let thread = task::thread("heyday-admin", move || {
            let served = runtime.block_on(async {
                // A sender that is dropped means the same as one that sends: stop.
                let shutdown = async { drop(stopped.await) };
                serve(tokio::net::TcpListener::from_std(listener)?, shown, shutdown).await
            });
            if let Err(error) = served {
                tracing::error!(%error, "the admin server ended");
            }
        });
        Ok(Self { address, stop: Some(stop), thread: Some(thread.map_err(Error::Start)?) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        drop(self.stop.take());
        // Bounded by STOP_GRACE. A panic in there has been reported by its thread.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// Serves until `shutdown` completes, then lets requests under way finish within a bound.
///
/// # Errors
///
/// Where the listener fails for good.
pub async fn serve(
    listener: tokio::net::TcpListener,
    shown: Shown,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let (stopping, stop) = oneshot::channel::<()>();
    let announced = async move {
        shutdown.await;
        drop(stopping);
    };
    let served = axum::serve(listener, router(shown)).with_graceful_shutdown(announced);
    let too_late = async {
        drop(stop.await);
        tokio::time::sleep(STOP_GRACE).await;
    };
    tokio::select! {
        biased;
        result = served.into_future() => result,
        () = too_late => Ok(()),
    }
}

fn router(shown: Shown) -> Router {
    let empty = Router::new().fallback(unknown);
    let routes = ENDPOINTS.iter().fold(empty, |router, endpoint| router.route(endpoint.path, (endpoint.handler)()));
    routes.with_state(shown)
}

async fn index(State(shown): State<Shown>) -> Html<String> {
    Html(page::render(&shown))
}

async fn numbers(State(shown): State<Shown>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], shown.metrics.encode())
}

#[derive(Serialize)]
struct Alive {
    alive: bool,
    heartbeat_age_ms: u64,
    silence_max_ms: u64,
}

async fn health(State(shown): State<Shown>) -> Response {
    let health = shown.metrics.health();
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let alive = health.is_alive();
    json(
        alive,
        &Alive { alive, heartbeat_age_ms: ms(health.heartbeat_age()), silence_max_ms: ms(health.silence_max()) },
    )
}

#[derive(Serialize)]
struct Ready {
    ready: bool,
    reason: Option<String>,
    #[serde(flatten)]
    readiness: Readiness,
}

async fn ready(State(shown): State<Shown>) -> Response {
    let readiness = shown.metrics.health().readiness();
    let reason = readiness.obstacle();
    json(reason.is_none(), &Ready { ready: reason.is_none(), reason, readiness })
}

async fn unknown() -> impl IntoResponse {
    let paths = ENDPOINTS.map(|endpoint| endpoint.path).join(" ");
    (StatusCode::NOT_FOUND, format!("no such page; there are: {paths}\n"))
}

fn json(holds: bool, body: &impl Serialize) -> Response {
    let status = if holds { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut text = serde_json::to_string(body).expect("answers are plain data");
    text.push('\n');
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

#[cfg(test)]
mod tests;
