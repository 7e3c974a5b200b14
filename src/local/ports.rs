//! Six consecutive free ports, reserved so that two clusters started at the same moment never take the same ones.

use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};

use super::NODES;

/// Where the range begins, and where it ends (exclusive). A node's bus is on its port + 10000; above the range that would reach
/// 32768, where the ports of outgoing connections begin and any could be taken at any moment.
pub(super) const FIRST: u16 = 17_100;
pub(super) const END: u16 = 22_700;
const BUS_OFFSET: u16 = 10_000;

/// A reservation, held until it is dropped or its process ends.
///
/// The marker is a UDP socket on the first port: exclusive between all processes and users of the machine, in nobody's way
/// (Redis listens on TCP), and given back by the kernel even after SIGKILL. A marker file would have to be swept.
#[derive(Debug)]
pub struct Ports {
    first: u16,
    _marker: UdpSocket,
}

impl Ports {
    /// Takes the next free six, or nothing where all are taken.
    pub fn reserve() -> io::Result<Option<Ports>> {
        let groups = (END - FIRST) / NODES as u16;
        // Processes start looking at different places: less to try, and no port is reused at once.
        let offset = (std::process::id() % u32::from(groups)) as u16;
        for step in 0..groups {
            let first = FIRST + (offset + step) % groups * NODES as u16;
            let marker = match UdpSocket::bind((Ipv4Addr::LOCALHOST, first)) {
                Ok(marker) => marker,
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => continue,
                Err(error) => return Err(error),
            };
            if (first..first + NODES as u16).all(|port| is_free(port) && is_free(port + BUS_OFFSET)) {
                return Ok(Some(Ports { first, _marker: marker }));
            }
        }
        Ok(None)
    }

    /// The first of the six.
    pub fn first(&self) -> u16 {
        self.first
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_reservations_never_overlap() {
        let one = Ports::reserve().expect("ports").expect("six free ports");
        let other = Ports::reserve().expect("ports").expect("six free ports");
        assert!(one.first().abs_diff(other.first()) >= NODES as u16, "{one:?} {other:?}");
    }

    #[test]
    fn a_group_with_one_busy_bus_port_is_passed_over() {
        let first = Ports::reserve().expect("ports").expect("six free ports").first();
        let _busy = TcpListener::bind((Ipv4Addr::LOCALHOST, first + 5 + BUS_OFFSET)).expect("the bus port was free");
        let second = Ports::reserve().expect("ports").expect("six free ports");
        assert_ne!(second.first(), first);
    }
}
