//! A month as a picture: weeks from Monday, and below them who celebrates when.

use std::collections::BTreeSet;

use jiff::civil::Date;

use super::Sheet;

const WEEKDAYS: [&str; 7] = ["Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"];
const CELL_WIDTH: usize = 5;
const BIRTHDAY: &str = "\x1b[1;32m";
const TODAY: &str = "\x1b[7m";
const PLAIN: &str = "\x1b[0m";

/// The picture, its lines without trailing spaces. `styled` marks days by colour, else by signs.
pub(super) fn draw(sheet: &Sheet, today: Date, styled: bool) -> String {
    let title = sheet.month.0.strftime("%B %Y").to_string();
    let mut lines = vec![format!("{title:^width$}", width = CELL_WIDTH * WEEKDAYS.len())];
    lines.push(WEEKDAYS.map(|day| format!(" {day}  ")).concat());
    let marked: BTreeSet<Date> = sheet.celebrations.iter().map(|celebration| celebration.date).collect();
    let first = sheet.month.0;
    let blanks = usize::try_from(first.weekday().to_monday_zero_offset()).unwrap_or(0);
    let days = first.series(jiff::Span::new().days(1)).take_while(|day| day.month() == first.month());
    let cells = days.map(|day| cell(day, marked.contains(&day), day == today, styled));
    let cells: Vec<String> = std::iter::repeat_n(" ".repeat(CELL_WIDTH), blanks).chain(cells).collect();
    lines.extend(cells.chunks(WEEKDAYS.len()).map(<[String]>::concat));
    lines.push(String::new());
    lines.extend(below(sheet));
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn cell(day: Date, birthday: bool, today: bool, styled: bool) -> String {
    let number = format!("{:>2}", day.day());
    match (styled, today, birthday) {
        (true, false, false) | (false, false, false) => format!(" {number}  "),
        (true, _, _) => {
            let style = [(today, TODAY), (birthday, BIRTHDAY)].map(|(is, style)| if is { style } else { "" }).concat();
            format!(" {style}{number}{PLAIN}  ")
        }
        (false, true, false) => format!("[{number}] "),
        (false, true, true) => format!("[{number}*]"),
        (false, false, true) => format!(" {number}* "),
    }
}

/// A line for each friend, in columns.
fn below(sheet: &Sheet) -> Vec<String> {
    if sheet.celebrations.is_empty() {
        return vec!["nobody celebrates".to_owned()];
    }
    let width = sheet.celebrations.iter().map(|celebration| celebration.friend.as_str().chars().count()).max();
    let width = width.unwrap_or(0);
    let line = |celebration: &super::Celebration| {
        let day = celebration.date.strftime("%a %e").to_string();
        let turns = celebration.age.map_or(String::new(), |age| format!("turns {age}"));
        format!("{day}  {:<width$}  {turns}", celebration.friend.as_str())
    };
    sheet.celebrations.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::civil::date;

    use super::*;
    use crate::birthday::{Birthday, LeapDay};
    use crate::cli::calendar::Month;
    use crate::client::reader::{Friend, Profile, State, View};
    use crate::shard::Shard;

    fn sheet(month: &str, friends: &[(&str, &str)]) -> Sheet {
        let friends = friends.iter().map(|(friend, date)| {
            let birthday = Birthday::parse(date).unwrap();
            Friend { friend: friend.parse().unwrap(), birthday, next: None }
        });
        let view = View {
            user: "42".parse().unwrap(),
            shard: Shard(0),
            state: State::Live,
            freshness: Duration::ZERO,
            today: date(2026, 11, 30),
            age: Duration::ZERO,
            profile: Profile::default(),
            friends: friends.collect(),
        };
        Sheet::new(month.parse::<Month>().unwrap(), &view, LeapDay::February28)
    }

    #[test]
    fn a_month_is_drawn_in_weeks_from_monday() {
        let friends =
            [("zoe", "1990-11-30"), ("anna", "--11-30"), ("bob", "2026-11-01"), ("кіт", "2000-11-08"), ("x", "")];
        insta::assert_snapshot!(draw(&sheet("2026-11", &friends), date(2026, 11, 30), false));
        insta::assert_snapshot!("empty", draw(&sheet("2027-02", &[]), date(2027, 2, 8), false));
    }

    #[test]
    fn a_terminal_gets_styles_in_place_of_signs() {
        let drawn = draw(&sheet("2026-11", &[("zoe", "1990-11-30"), ("bob", "1990-11-03")]), date(2026, 11, 30), true);
        assert!(drawn.contains("\x1b[7m\x1b[1;32m30\x1b[0m") && drawn.contains(" \x1b[1;32m 3\x1b[0m  "), "{drawn:?}");
        assert!(!drawn.contains(['*', '[']) || !drawn.replace("\x1b[", "").contains(['*', '[']), "{drawn:?}");
    }

    #[test]
    fn the_29th_of_february_is_drawn_where_it_is_celebrated() {
        let celebrated = |month| sheet(month, &[("leap", "2000-02-29")]).celebrations.first().map(|found| found.date);
        assert_eq!(celebrated("2027-02"), Some(date(2027, 2, 28)));
        assert_eq!(celebrated("2028-02"), Some(date(2028, 2, 29)));
        assert_eq!((celebrated("2027-03"), celebrated("2000-02")), (None, None));
    }
}
