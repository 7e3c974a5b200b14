//! The socket under a link, plain or TLS, set so that a dead peer shows within seconds.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

use super::{
    error::Error,
    options::{ConnectOptions, NodeAddress},
};

/// How long a silent connection may be before the system asks the peer, how often it asks, and how many times.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(1);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
const KEEPALIVE_PROBES: u32 = 2;
/// How long sent bytes may stay unacknowledged. Without keepalive it notices nothing on a silent connection.
#[cfg(any(target_os = "linux", target_os = "android"))]
const USER_TIMEOUT: Duration = Duration::from_secs(2);

/// One connection.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Dials `node`. The caller bounds the time.
    pub async fn connect(node: &NodeAddress, options: &ConnectOptions) -> Result<Self, Error> {
        let dialled = options.dialled(node);
        let failed = |source| connect_error(node, source);
        let socket = TcpStream::connect((dialled.host.as_str(), dialled.port)).await.map_err(failed)?;
        tune(&socket).map_err(failed)?;
        match &options.tls {
            None => Ok(Self::Tcp(socket)),
            Some(tls) => {
                let connected = tls.connector().connect(tls.server_name(node)?, socket).await;
                connected.map(|stream| Self::Tls(Box::new(stream))).map_err(failed)
            }
        }
    }
}

/// Why a connection did not come about. What the TLS layer refuses, or the peer's, another attempt will not mend. With
/// TLS 1.3 a missing client certificate shows only with the first answer.
pub fn connect_error(node: &NodeAddress, source: io::Error) -> Error {
    let is_tls = source.get_ref().is_some_and(|inner| inner.is::<tokio_rustls::rustls::Error>());
    let (node, source) = (node.clone(), Arc::new(source));
    if is_tls { Error::Tls { node, source } } else { Error::Connect { node, source } }
}

fn tune(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let socket = SockRef::from(socket);
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE);
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "macos", target_os = "freebsd"))]
    let keepalive = keepalive.with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_PROBES);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))?;
    Ok(())
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, buffer),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

#[cfg(test)]
mod tests {
    /// Whether the options are set is all that shows here: the network that drops packets needs rights a test lacks.
    #[cfg(feature = "server")]
    #[tokio::test]
    async fn a_dead_peer_shows_within_seconds() {
        use super::*;

        let ports = crate::local::Ports::reserve().unwrap().unwrap();
        let node = NodeAddress::new("127.0.0.1", ports.first());
        let _listener = tokio::net::TcpListener::bind(("127.0.0.1", node.port)).await.unwrap();
        let stream = Stream::connect(&node, &ConnectOptions::default()).await.unwrap();
        let Stream::Tcp(socket) = stream else { panic!("no TLS was asked for") };
        assert!(socket.nodelay().unwrap());
        let socket = SockRef::from(&socket);
        assert!(socket.keepalive().unwrap());
        #[cfg(target_os = "linux")]
        {
            assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE_IDLE);
            assert_eq!(socket.tcp_keepalive_interval().unwrap(), KEEPALIVE_INTERVAL);
            assert_eq!(socket.tcp_keepalive_retries().unwrap(), KEEPALIVE_PROBES);
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(USER_TIMEOUT));
        }
    }
}
