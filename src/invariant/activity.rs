//! What is stored of a user's activity is well formed.

use super::{Kind, Violation, shown};
use crate::activity::{DAYS_KEPT, WEIGHT_SUM_MAX, day_of, sum_of};
use crate::change::is_category;

/// Most days there can be: those that are kept, and two that were ahead before a move from the far east to the far west.
const DAYS_STORED_MAX: u64 = DAYS_KEPT as u64 + 2;

/// One day of a user's.
pub fn judge_day_sum(key: &str, day: &[u8], sum: &[u8]) -> Option<Violation> {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let wrong = |expected: String, found: &[u8]| Some(Violation::new(Kind::View, key, expected, shown(found)));
    if text(day).and_then(day_of).is_none() {
        return wrong("a day".to_owned(), day);
    }
    if text(sum).and_then(sum_of).is_none() {
        return wrong(format!("a sum of weights for {}", shown(day)), sum);
    }
    None
}

/// How many days there are of one user.
pub fn judge_day_count(key: &str, count: u64) -> Option<Violation> {
    let expected = || format!("at most {DAYS_STORED_MAX} days");
    (count > DAYS_STORED_MAX).then(|| Violation::new(Kind::View, key, expected(), count.to_string()))
}

/// One category and its score.
pub fn judge_category(key: &str, category: &[u8], score: &[u8]) -> Option<Violation> {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    if !text(category).is_some_and(is_category) {
        return Some(Violation::new(Kind::View, key, "a category", shown(category)));
    }
    let number = text(score).and_then(|score| score.parse::<f64>().ok());
    let whole = |score: &f64| score.fract() == 0.0 && (1.0..=WEIGHT_SUM_MAX as f64).contains(score);
    if number.filter(whole).is_none() {
        let expected = format!("a sum of weights for {}", shown(category));
        return Some(Violation::new(Kind::View, key, expected, shown(score)));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_sums() {
        for (day, sum, good) in [
            ("2026-11-29", "7", true),
            ("2026-11-29", "18446744073709551615", true),
            ("2026-11-29", "18446744073709551616", false),
            ("2026-11-29", "-1", false),
            ("2026-11-29", "", false),
            ("2026-11-31", "7", false),
            ("20261129", "7", false),
            ("", "7", false),
        ] {
            let found = judge_day_sum("k", day.as_bytes(), sum.as_bytes());
            assert_eq!(found.is_none(), good, "{day} {sum}: {found:?}");
        }
        assert!(judge_day_sum("k", b"\xff", b"7").is_some());
        assert_eq!((judge_day_count("k", 33), judge_day_count("k", 34).is_some()), (None, true));
    }

    #[test]
    fn categories_have_weights() {
        for (category, score, good) in [
            ("music", "1", true),
            ("music", "9007199254740992", true),
            ("music", "9.007199254740992e+15", true),
            ("music", "9007199254740994", false),
            ("music", "0", false),
            ("music", "1.5", false),
            ("music", "inf", false),
            ("music", "nan", false),
            ("two words", "1", false),
            ("", "1", false),
        ] {
            let found = judge_category("k", category.as_bytes(), score.as_bytes());
            assert_eq!(found.is_none(), good, "{category} {score}: {found:?}");
        }
    }
}
