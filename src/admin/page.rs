//! The index page: state and links at a glance, for a person. Plain HTML, nothing loaded from elsewhere.

use std::time::Duration;

use super::{ENDPOINTS, Shown};

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c1917;--soft:#78716c;--line:#e7e5e4;--page:#fafaf9;--good:#15803d;--bad:#b91c1c}\
@media(prefers-color-scheme:dark){:root{--ink:#f5f5f4;--soft:#a8a29e;--line:#44403c;--page:#1c1917;--good:#4ade80;--bad:#f87171}}\
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:40rem;margin:4rem auto;padding:0 1.5rem}\
h1{font-size:1.6rem;margin:0}h1 small{font-weight:400;color:var(--soft);font-size:1rem}\
h2{font-size:.85rem;font-weight:600;color:var(--soft);margin:2.2rem 0 .4rem}\
dl{display:grid;grid-template-columns:10rem 1fr;margin:0;border-top:1px solid var(--line)}\
dt,dd{margin:0;padding:.45rem 0;border-bottom:1px solid var(--line)}dt{color:var(--soft)}\
dd{font-variant-numeric:tabular-nums;overflow-wrap:anywhere}\
.good{color:var(--good)}.bad{color:var(--bad)}a{color:inherit;text-underline-offset:.2em}";

pub(super) fn render(shown: &Shown) -> String {
    let health = shown.metrics.health();
    let readiness = health.readiness();
    let alive = if health.is_alive() {
        good("yes")
    } else {
        bad(&format!("no round of supervision for {}", whole_seconds(health.heartbeat_age())))
    };
    let ready = readiness.obstacle().map_or_else(|| good("yes"), |reason| bad(&reason));
    let state = [
        ("Worker", escape(&shown.worker)),
        ("Alive", alive),
        ("Ready", ready),
        ("Shards", format!("{} of {} aimed for", readiness.shards_owned, readiness.shards_aimed)),
        ("Commits", shown.metrics.commits().to_string()),
        ("Up for", whole_seconds(health.uptime())),
    ];
    let state: String = state.iter().map(|(name, value)| format!("<dt>{name}</dt><dd>{value}</dd>")).collect();
    let pages = ENDPOINTS
        .iter()
        .map(|endpoint| format!("<dt><a href=\"{0}\">{0}</a></dt><dd>{1}</dd>", endpoint.path, escape(endpoint.what)));
    let pages: String = pages.collect();
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"5\">\
         <meta name=\"viewport\" content=\"width=device-width\"><link rel=\"icon\" href=\"data:,\">\
         <title>heyday worker</title><style>{STYLE}</style></head><body>\
         <h1>heyday <small>{version}</small></h1>\
         <h2>State</h2><dl>{state}</dl><h2>Pages</h2><dl>{pages}</dl></body></html>\n"
    )
}

fn good(text: &str) -> String {
    format!("<span class=\"good\">{}</span>", escape(text))
}

fn bad(text: &str) -> String {
    format!("<span class=\"bad\">no: {}</span>", escape(text))
}

fn whole_seconds(duration: Duration) -> String {
    humantime::format_duration(Duration::from_secs(duration.as_secs())).to_string()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
