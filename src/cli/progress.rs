//! Progress bars on stderr, where a person watches; elsewhere they show nothing.

use indicatif::{ProgressBar, ProgressStyle};

/// So many things are to be done.
pub fn of_items(count: u64) -> ProgressBar {
    styled(ProgressBar::new(count), "{bar:30} {human_pos} of {human_len}, {per_sec}, {eta} left")
}

/// How far it is now, of how much by what is known now.
pub fn show(bar: &ProgressBar, (done, count): (u64, u64)) {
    bar.set_length(count);
    bar.set_position(done);
}

/// So many bytes are to be read; the number of changes and their rate come as the message.
pub fn of_bytes(count: u64) -> ProgressBar {
    styled(ProgressBar::new(count), "{bar:30} {bytes} of {total_bytes}, {msg}, {eta} left")
}

/// Nobody knows how much there is.
pub fn of_unknown() -> ProgressBar {
    styled(ProgressBar::no_length(), "{spinner} {bytes}, {msg}, {elapsed}")
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    bar.with_style(ProgressStyle::with_template(template).expect("a template that is checked by a test"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn templates_are_valid() {
        let bars = [super::of_items(1), super::of_bytes(1), super::of_unknown()];
        assert!(bars.iter().all(|bar| bar.position() == 0));
    }
}
