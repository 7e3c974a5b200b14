//! Processes whose clock is wrong: a shim between them and libc shifts the time of day by a fixed span.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("skew.c");

/// The environment of a process whose clock is so many seconds ahead, or behind where that is negative. It is for worker
/// processes (`Workers::start_with`) and for nodes (`local::Options::environment`) alike.
pub fn environment(seconds: i64) -> BTreeMap<String, String> {
    let shim = shim().to_str().expect("a path in UTF-8").to_owned();
    BTreeMap::from([("LD_PRELOAD".to_owned(), shim), ("CLOCK_SKEW_SECONDS".to_owned(), seconds.to_string())])
}

/// The shim, built by the first test that needs it; whoever builds it at the same time builds the same.
fn shim() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let digest = sha1_smol::Sha1::from(SOURCE).hexdigest();
    let shim = folder.join(format!("skew-{digest}.so"));
    if shim.exists() {
        return shim;
    }
    let own = format!("skew-{digest}-{}", std::process::id());
    let (source, built) = (folder.join(format!("{own}.c")), folder.join(format!("{own}.so")));
    fs::write(&source, SOURCE).expect("the shim's source");
    let output = Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).args([&built, &source]).output();
    let output = output.expect("cc, which Rust needs to link");
    assert!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    fs::rename(&built, &shim).expect("the shim in its place");
    fs::remove_file(&source).expect("the source is of no more use");
    shim
}
