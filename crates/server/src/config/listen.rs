//! Where a server listens: a name or an address, with a port.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;
use std::{fmt, io};

use serde::{Deserialize, Deserializer, de};

use super::ConfigError;

/// `HOST:PORT`, as in `localhost:7117`, `0.0.0.0:7117` or `[::1]:7117`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress(String);

impl ListenAddress {
    /// Every address that it stands for. A name is looked up, so this can block.
    pub fn resolve(&self) -> Result<ListenAddresses, ConfigError> {
        let found = self.resolve_by(|name| Ok(name.to_socket_addrs()?.collect()));
        found.map_err(|problem| ConfigError { origin: "the configuration".to_owned(), problem })
    }

    fn resolve_by(
        &self,
        look_up: impl Fn(&str) -> io::Result<Vec<SocketAddr>>,
    ) -> Result<ListenAddresses, String> {
        let found = match self.0.parse() {
            Ok(address) => vec![address],
            Err(_) => match (look_up(&self.0), self.0.strip_prefix("localhost:").map(str::parse)) {
                (Ok(found), _) => found,
                // The smallest systems have neither /etc/hosts nor a name server; what this name means is known all the same.
                (Err(_), Some(Ok(port))) => vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))],
                (Err(error), _) => return Err(format!("listen: {self} cannot be resolved: {error}")),
            },
        };
        ListenAddresses::new(self, found)
    }
}

impl Default for ListenAddress {
    fn default() -> Self {
        ListenAddress("localhost:7117".to_owned())
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_name = |host: &str| {
            !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
        };
        let is_named = |(host, port): (&str, &str)| is_name(host) && port.parse::<u16>().is_ok();
        if text.parse::<SocketAddr>().is_ok() || text.rsplit_once(':').is_some_and(is_named) {
            return Ok(ListenAddress(text.to_owned()));
        }
        Err(format!("{text:?} is not HOST:PORT, as in localhost:7117, 0.0.0.0:7117 or [::1]:7117"))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl<'de> Deserialize<'de> for ListenAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Addresses to listen on: at least one, and either all or none of them are loopback addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddresses(Vec<SocketAddr>);

impl ListenAddresses {
    /// The addresses that were found for a name.
    pub fn new(name: &ListenAddress, mut found: Vec<SocketAddr>) -> Result<Self, String> {
        let mut seen = HashSet::new();
        found.retain(|address| seen.insert(*address));
        let local = found.iter().filter(|address| address.ip().is_loopback()).count();
        if found.is_empty() {
            return Err(format!("listen: {name} resolves to no address"));
        }
        if local != 0 && local != found.len() {
            let all: Vec<String> = found.iter().map(|address| address.ip().to_string()).collect();
            return Err(format!(
                "listen: {name} resolves to {}, of which only some are loopback addresses; name the address to listen on",
                all.join(", ")
            ));
        }
        Ok(ListenAddresses(found))
    }

    /// Whether only programs on this machine can reach them.
    pub fn are_loopback(&self) -> bool {
        self.0.iter().all(|address| address.ip().is_loopback())
    }

    /// The addresses.
    pub fn as_slice(&self) -> &[SocketAddr] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(addresses: &[&str]) -> Result<ListenAddresses, String> {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        ListenAddresses::new(&ListenAddress::default(), addresses)
    }

    #[test]
    fn a_name_or_an_address_with_a_port_is_read_and_nothing_else() {
        for fine in ["localhost:7117", "a-b.example.org:1", "0.0.0.0:7117", "[::1]:7117", "[::]:0"] {
            assert_eq!(fine.parse::<ListenAddress>().unwrap().to_string(), fine);
        }
        for bad in
            ["", "7117", ":7117", "localhost", "localhost:", "localhost:65536", "::1:7117", "[::1", "a b:1"]
        {
            let error = bad.parse::<ListenAddress>().unwrap_err();
            assert!(error.contains("is not HOST:PORT"), "{bad}: {error}");
        }
    }

    #[test]
    fn a_name_is_loopback_with_all_its_addresses_or_with_none() {
        let both = found(&["127.0.0.1:1", "[::1]:1", "127.0.0.1:1"]).unwrap();
        assert_eq!((both.are_loopback(), both.as_slice().len()), (true, 2));
        assert!(!found(&["192.0.2.7:1", "[2001:db8::7]:1"]).unwrap().are_loopback());
        for mixed in [["127.0.0.1:1", "192.0.2.7:1"], ["192.0.2.7:1", "[::1]:1"]] {
            let error = found(&mixed).unwrap_err();
            assert!(error.contains("192.0.2.7") && error.contains("only some are loopback"), "{error}");
        }
        assert!(found(&[]).unwrap_err().contains("no address"));
    }

    #[test]
    fn an_address_is_itself_and_localhost_is_loopback() {
        let address: ListenAddress = "0.0.0.0:7117".parse().unwrap();
        assert_eq!(address.resolve().unwrap(), found(&["0.0.0.0:7117"]).unwrap());
        assert!(ListenAddress::default().resolve().unwrap().are_loopback());
    }

    #[test]
    fn localhost_needs_no_name_server_and_other_names_do() {
        let nobody_answers = |_: &str| Err(io::Error::other("no name server"));
        let local = ListenAddress::default().resolve_by(nobody_answers).unwrap();
        assert_eq!(local, found(&["127.0.0.1:7117"]).unwrap());
        let other: ListenAddress = "leases.internal:7117".parse().unwrap();
        let why = other.resolve_by(nobody_answers).unwrap_err();
        assert_eq!(why, "listen: leases.internal:7117 cannot be resolved: no name server");
    }
}
