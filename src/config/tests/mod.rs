//! Tests of where settings come from, and that secrets stay secret.

mod limits;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use figment::providers::{Format, Toml};
use figment::value::Value;

use crate::redis::NodeAddress;

use super::{Config, Error, Flag, Settings, Source, Sources};

const DEFAULT_FILE: &str = include_str!("../../../config/default.toml");
const DEVELOPMENT_FILE: &str = include_str!("../../../config/development.toml");

struct Scene {
    folder: tempfile::TempDir,
    sources: Sources,
}

fn scene() -> Scene {
    Scene { folder: tempfile::tempdir().unwrap(), sources: Sources::default() }
}

impl Scene {
    fn file(mut self, text: &str) -> Self {
        let path = self.folder.path().join("heyday.toml");
        std::fs::write(&path, text).unwrap();
        self.sources.file = Some(path);
        self
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.sources.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    fn flag(mut self, name: &'static str, key: &'static str, value: impl Into<Value>) -> Self {
        self.sources.flags.push(Flag { name, key, value: value.into() });
        self
    }

    fn load(&self) -> Settings {
        Settings::load(&self.sources).unwrap()
    }

    /// The problems, with the folder's name taken out.
    fn problems(&self) -> Vec<String> {
        let Error { problems } = Settings::load(&self.sources).unwrap_err();
        let folder = format!("{}/", self.folder.path().display());
        problems.iter().map(|problem| problem.replace(&folder, "")).collect()
    }
}

fn check(file: &str, expected: &[&str]) {
    assert_eq!(scene().file(file).problems(), expected, "for {file}");
}

#[test]
fn defaults_hold_and_come_from_the_code() {
    let settings = scene().load();
    assert_eq!(settings.config, Config::default());
    assert!(settings.effective().iter().all(|row| row.source == "default"));
}

#[test]
fn default_file_is_complete_and_equal_to_the_code() {
    // No defaults are laid under it here: a setting that the file lacks is an error.
    let read: Config = figment::Figment::from(Toml::string(DEFAULT_FILE)).extract().unwrap();
    assert_eq!(read, Config::default());
    assert_eq!(scene().file(DEFAULT_FILE).load().config, Config::default());
}

#[test]
fn default_file_has_one_sentence_for_each_setting_in_the_order_of_the_code() {
    let mut section = String::new();
    let mut comment = None;
    let mut keys = Vec::new();
    for line in DEFAULT_FILE.lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_owned();
        } else if let Some((name, _)) = line.split_once(" = ").filter(|_| !line.starts_with('#')) {
            let sentence: &str = comment.unwrap_or_else(|| panic!("{section}.{name} has no comment above it"));
            assert!(sentence.starts_with("# ") && sentence.ends_with('.'), "{section}.{name}: {sentence}");
            keys.push(format!("{section}.{name}"));
        }
        comment = line.starts_with('#').then_some(line);
    }
    let of_code: Vec<String> = scene().load().effective().into_iter().map(|row| row.key).collect();
    assert_eq!(keys, of_code);
}

#[test]
fn development_file_holds() {
    scene().file(DEVELOPMENT_FILE).load();
}

#[test]
fn flag_beats_variable_beats_file_beats_default() {
    let file = "[worker]\nblock = '1s'\nheartbeat = '400ms'\nlease_ttl = '9s'\n";
    let scene = scene()
        .file(file)
        .variable("HEYDAY_WORKER__BLOCK", "1100ms")
        .variable("HEYDAY_WORKER__HEARTBEAT", "300ms")
        .flag("--block", "worker.block", "1200ms");
    let settings = scene.load();
    let worker = &settings.config.worker;
    assert_eq!(worker.block, Duration::from_millis(1200));
    assert_eq!(worker.heartbeat, Duration::from_millis(300));
    assert_eq!(worker.lease_ttl, Duration::from_secs(9));
    assert_eq!(worker.backoff_max, Config::default().worker.backoff_max);

    assert_eq!(settings.source("worker.block"), &Source::Flag("--block"));
    assert_eq!(settings.source("worker.heartbeat"), &Source::Environment("HEYDAY_WORKER__HEARTBEAT".to_owned()));
    assert!(matches!(settings.source("worker.lease_ttl"), Source::File(path) if path.ends_with("heyday.toml")));
    assert_eq!(settings.source("worker.backoff_max"), &Source::Default);
}

#[test]
fn variables_take_every_type() {
    let settings = scene()
        .variable("HEYDAY_REDIS__NODES", "a:1, b:2")
        .variable("HEYDAY_REDIS__TLS", "true")
        .variable("HEYDAY_REDIS__ADDRESS_MAP", r#"{"10.0.0.1:6379"="127.0.0.1:7001"}"#)
        .variable("HEYDAY_WORKER__BATCH_CHANGES_MAX", "100")
        .variable("HEYDAY_WORKER__PREFLIGHT", "warn")
        .variable("HEYDAY_CALENDAR__TIME_ZONE", "Europe/Berlin")
        .variable("HEYDAY_CALENDAR__NOTIFY_AT", "07:30")
        .variable("HEYDAY_ADMIN__LISTEN", "")
        .load();
    let Config { redis, worker, calendar, admin, .. } = settings.config;
    let node = |text: &str| text.parse::<NodeAddress>().unwrap();
    assert_eq!(redis.nodes, [node("a:1"), node("b:2")]);
    assert!(redis.tls);
    assert_eq!(redis.address_map, BTreeMap::from([(node("10.0.0.1:6379"), node("127.0.0.1:7001"))]));
    assert_eq!(worker.batch_changes_max, 100);
    assert_eq!(worker.preflight, super::Preflight::Warn);
    assert_eq!(calendar.time_zone.time_zone().iana_name(), Some("Europe/Berlin"));
    assert_eq!(calendar.notify_at.time(), jiff::civil::time(7, 30, 0, 0));
    assert_eq!(admin.listen, None);
}

#[test]
fn password_that_looks_like_another_type_stays_what_it_is() {
    for password in ["007", "true", "1.50", "[a]", "{a=b}", "\"quoted\"", " spaced "] {
        let settings = scene().variable("HEYDAY_REDIS__PASSWORD", password).load();
        assert_eq!(settings.config.redis.password.unwrap().reveal(), password);
    }
}

#[test]
fn secrets_are_never_printed() {
    let settings = scene().variable("HEYDAY_REDIS__PASSWORD", "hunter2").load();
    let printed = format!("{settings:?} {}", serde_json::to_string(&settings.effective()).unwrap());
    assert!(!printed.contains("hunter2"), "{printed}");
    assert!(
        printed.contains(
            r#"{"key":"redis.password","value":"***","source":"environment variable HEYDAY_REDIS__PASSWORD"}"#
        )
    );

    // Nor where something is wrong with them, or with the file around them.
    check("[redis]\npassword = 4711\n", &["redis.password = *** (file heyday.toml): expected a string"]);
    check("[redis]\npassword = ['hunter2']\n", &["redis.password = *** (file heyday.toml): expected a string"]);
    for broken in
        ["[redis]\npassword = 'hunter2\n", "[redis]\npassword = hunter2\n", "[redis]\npassword = 'hunter2' x\n"]
    {
        let problems = scene().file(broken).problems().join("\n");
        assert!(problems.starts_with("configuration file heyday.toml: "), "{problems}");
        assert!(!problems.contains("hunter2") && !problems.contains('\n'), "{problems}");
    }
}

#[test]
fn unknown_settings_name_themselves_their_source_and_what_was_meant() {
    check(
        "[worker]\nblok = '1s'\n[nonsense]\nthing = 1\n",
        &[
            "nonsense.thing: no such setting (file heyday.toml); see `heyday config show` for every setting",
            "worker.blok: no such setting (file heyday.toml); did you mean worker.block?",
        ],
    );
    let problems = scene()
        .variable("HEYDAY_REDIS_NODES", "a:1")
        .variable("HEYDAY_WORKER__LEASE", "1s")
        .variable("HEYDAY_NODES", "a:1")
        .problems();
    assert_eq!(
        problems,
        [
            "HEYDAY_NODES: no such setting (environment variable HEYDAY_NODES); did you mean HEYDAY_REDIS__NODES?",
            "HEYDAY_REDIS_NODES: no such setting (environment variable HEYDAY_REDIS_NODES); did you mean HEYDAY_REDIS__NODES?",
            "HEYDAY_WORKER__LEASE: no such setting (environment variable HEYDAY_WORKER__LEASE); did you mean HEYDAY_WORKER__LEASE_TTL?",
        ]
    );
}

#[test]
fn variables_that_others_set_are_passed_over() {
    let scene = scene()
        .variable("HEYDAY_CONFIG", "x.toml")
        .variable("HEYDAY_TEST_SERVER", "valkey-server")
        .variable("HEYDAY_SERVICE_HOST", "10.0.0.1")
        .variable("HEYDAY_SERVICE_PORT", "9464")
        .variable("HEYDAY_SERVICE_PORT_ADMIN", "9464")
        .variable("HEYDAY_PORT", "tcp://10.0.0.1:9464")
        .variable("HEYDAY_WORKER_PORT", "tcp://10.0.0.1:9464")
        .variable("HEYDAY_PORT_9464_TCP", "tcp://10.0.0.1:9464")
        .variable("HEYDAY_PORT_9464_TCP_ADDR", "10.0.0.1")
        .variable("OTHER", "1");
    assert_eq!(scene.load().config, Config::default());
    // What only looks like them is a mistake to be told of.
    assert_eq!(self::scene().variable("HEYDAY_ADMIN_PORT", "9464").problems().len(), 1);
}

#[test]
fn wrong_values_name_key_value_source_and_what_was_expected_all_at_once() {
    check(
        "[worker]\nblock = '5 parsecs'\nbatch_changes_max = 'many'\nstrict_fields = 3\npreflight = 'maybe'\ndeliveries_max = -1\n\
         [calendar]\ntime_zone = 'Europe/Atlantis'\nnotify_at = '9 in the morning'\nleap_day = 'june-1'\n[redis]\nnodes = 5\n",
        &[
            r#"calendar.leap_day = "june-1" (file heyday.toml): expected one of february-28, march-1"#,
            r#"calendar.notify_at = "9 in the morning" (file heyday.toml): expected a time of day such as 09:00"#,
            r#"calendar.time_zone = "Europe/Atlantis" (file heyday.toml): expected an IANA time zone such as Europe/Berlin"#,
            "redis.nodes = 5 (file heyday.toml): expected a list of host:port, or host:port,host:port",
            r#"worker.batch_changes_max = "many" (file heyday.toml): expected a whole number, 0 or more"#,
            r#"worker.block = "5 parsecs" (file heyday.toml): expected a duration such as 200ms or 10s"#,
            "worker.deliveries_max = -1 (file heyday.toml): expected a whole number, 0 or more",
            r#"worker.preflight = "maybe" (file heyday.toml): expected one of refuse, warn"#,
            "worker.strict_fields = 3 (file heyday.toml): expected true or false",
        ],
    );
}

#[test]
fn file_that_cannot_be_read_is_named() {
    let mut scene = scene();
    scene.sources.file = Some(scene.folder.path().join("absent.toml"));
    assert_eq!(scene.problems(), ["configuration file absent.toml: No such file or directory (os error 2)"]);
    scene.sources.file = Some(PathBuf::from(Path::new("/")));
    assert!(scene.problems()[0].starts_with("configuration file /: "));
}
