//! The scripts: what must happen in one step and needs a look first. Each file's first lines name KEYS and ARGV.

use std::sync::OnceLock;

use crate::error::ServerCode;
use crate::key::Key;
use crate::redis::{Pipeline, Reply};

pub(super) static TAKE: Script = Script::new(include_str!("../lua/take.lua"));
pub(super) static RENEW: Script = Script::new(include_str!("../lua/renew.lua"));
pub(super) static RELEASE: Script = Script::new(include_str!("../lua/release.lua"));
pub(super) static SHORTEN: Script = Script::new(include_str!("../lua/shorten.lua"));
pub(super) static HEARTBEAT: Script = Script::new(include_str!("../lua/heartbeat.lua"));
pub(super) static LOOK: Script = Script::new(include_str!("../lua/maintenance_look.lua"));
pub(super) static BACKLOG: Script = Script::new(include_str!("../lua/backlog.lua"));
pub(super) static RELAY: Script = Script::new(include_str!("../lua/relay.lua"));
pub(super) static TRIM: Script = Script::new(include_str!("../lua/trim.lua"));

/// A script and the name under which Redis caches it.
pub(super) struct Script {
    body: &'static str,
    digest: OnceLock<String>,
}

/// How a script is called. By its name first; the whole of it only where the node's cache has lost it, which a restart, a
/// failover or SCRIPT FLUSH does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    Name,
    Body,
}

impl Script {
    const fn new(body: &'static str) -> Script {
        Script { body, digest: OnceLock::new() }
    }

    pub fn write(&self, pipeline: &mut Pipeline, by: By, keys: &[&Key], arguments: &[impl AsRef<[u8]>]) {
        let mut command = match by {
            By::Name => {
                let digest = self.digest.get_or_init(|| sha1_smol::Sha1::from(self.body).hexdigest());
                let mut command = pipeline.command("EVALSHA");
                command.arg(digest);
                command
            }
            By::Body => {
                let mut command = pipeline.command("EVAL");
                command.arg(self.body);
                command
            }
        };
        command.arg_u64(keys.len() as u64);
        command.args(keys.iter().map(|key| key.as_bytes())).args(arguments);
    }
}

/// Whether the node asks for the whole script.
pub(super) fn is_lost(reply: &Reply) -> bool {
    reply.error().is_some_and(|error| error.code == ServerCode::NoScript)
}
