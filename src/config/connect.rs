//! From settings to the options of lower layers, which know nothing of settings.

use std::path::PathBuf;

use crate::redis::{self, ConnectOptions, Tls, TlsOptions};

use super::{Redis, Secret};

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
