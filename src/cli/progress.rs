//! Progress bars on stderr, where a person watches; elsewhere they show nothing.

use indicatif::{ProgressBar, ProgressStyle};

/// So many things are to be done.
pub fn of_items(count: u64) -> ProgressBar {
    styled(ProgressBar::new(count), "{bar:30} {human_pos} of {human_len}, {per_sec}, {eta} left")
}

fn styled(bar: ProgressBar, template: &str) -> ProgressBar {
    bar.with_style(ProgressStyle::with_template(template).expect("a template that is checked by a test"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn templates_are_valid() {
        assert_eq!(super::of_items(1).position(), 0);
    }
}
