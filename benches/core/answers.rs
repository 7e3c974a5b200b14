//! A stand-in for the server: answers the commands of a pipeline from what nobody has stored, always the same.

use std::fmt::Write;

use heyday::change::Fields;
use heyday::redis::Pipeline;
use heyday::redis::bare;

/// What the shard's state and stream say.
pub struct Answers {
    pub generation: u64,
    pub last: String,
    /// The oldest pending entry.
    pub pending: String,
    /// Unix milliseconds.
    pub now: u64,
}

impl Answers {
    /// The bytes of one answer to each command.
    pub fn to(&self, pipeline: &Pipeline) -> Vec<u8> {
        let commands = bare::replies(pipeline.bytes()).expect("commands look like answers");
        let (mut answers, mut queued) = (String::new(), None);
        for command in &commands {
            let words = command.as_array().expect("a command");
            // A signal is no text.
            let words = words.iter().map(|word| String::from_utf8_lossy(word.as_bytes().expect("a word")));
            let words: Vec<_> = words.collect();
            let words: Vec<&str> = words.iter().map(|word| &**word).collect();
            match (words[0], &mut queued) {
                ("MULTI", None) => queued = Some(Vec::new()),
                ("EXEC", Some(results)) => {
                    let (count, results) = (results.len(), results.concat());
                    write!(answers, "*{count}\r\n{results}").expect("memory");
                    continue;
                }
                (_, Some(results)) => {
                    results.push(self.write(&words));
                    answers.push_str("+QUEUED\r\n");
                    continue;
                }
                (_, None) => {}
            }
            answers += &if queued.is_some() { "+OK\r\n".to_owned() } else { self.read(&words) };
        }
        answers.into_bytes()
    }

    fn write(&self, words: &[&str]) -> String {
        match words[0] {
            "SET" => "+OK\r\n".to_owned(),
            "XADD" => bulk("1795978800000-1"),
            _ => ":1\r\n".to_owned(),
        }
    }

    fn read(&self, words: &[&str]) -> String {
        match words {
            ["WATCH", ..] => "+OK\r\n".to_owned(),
            ["XPENDING", ..] => {
                let first = bulk(&self.pending);
                format!("*4\r\n:512\r\n{first}{first}{}", array(&[array(&[bulk("owner"), bulk("512")])]))
            }
            ["TIME"] => array(&[bulk(&(self.now / 1000).to_string()), bulk("123456")]),
            ["XLEN" | "ZCARD" | "HLEN", ..] => ":20\r\n".to_owned(),
            ["EXISTS", ..] => ":1\r\n".to_owned(),
            ["HGET", key, field] => self.field(key, field),
            ["HMGET", key, fields @ ..] => {
                array(&fields.iter().map(|field| self.field(key, field)).collect::<Vec<_>>())
            }
            ["HGETALL", key] if key.ends_with(":activity") => {
                let days = (10..29).map(|day| [bulk(&format!("2026-11-{day}")), bulk("17")].concat());
                format!("*38\r\n{}", days.collect::<String>())
            }
            ["ZMSCORE", _, members @ ..] => array(&vec![bulk("12"); members.len()]),
            ["ZRANGE", ..] => array(&["categoryA", "3", "categoryB", "5"].map(bulk)),
            ["MGET", keys @ ..] => array(&vec!["$-1\r\n".to_owned(); keys.len()]),
            ["HRANDFIELD", ..] => "*0\r\n".to_owned(),
            _ => panic!("nobody has said what to answer to {words:?}"),
        }
    }

    /// Every other friend is there already; a profile has what heyday keeps in it.
    fn field(&self, key: &str, field: &str) -> String {
        let there = heyday::shard::slot_of(field.as_bytes()).is_multiple_of(2);
        match (key.rsplit(':').next().unwrap_or_default(), field) {
            ("birthdays", _) if there => bulk("1990-05-01"),
            ("profile", "schema") => bulk(&heyday::profile::PROFILE_SCHEMA.to_string()),
            ("profile", "version") => bulk("17"),
            ("profile", "updated_at" | "last_activity") => bulk("1795970000000"),
            ("profile", "birthday") => bulk("1990-05-01"),
            ("profile", "name" | "city") => bulk("what it was before"),
            (_, "generation") => bulk(&self.generation.to_string()),
            (_, "last") => bulk(&self.last),
            _ => "$-1\r\n".to_owned(),
        }
    }
}

/// The answer to a read of new entries.
pub fn entries(stream: &str, entries: &[(String, Fields)]) -> Vec<u8> {
    let text = |bytes: &[u8]| bulk(std::str::from_utf8(bytes).expect("text"));
    let entry = |(id, fields): &(String, Fields)| {
        let words: Vec<String> = fields.iter().flat_map(|(name, value)| [text(name), text(value)]).collect();
        array(&[bulk(id), array(&words)])
    };
    let entries: Vec<String> = entries.iter().map(entry).collect();
    array(&[array(&[bulk(stream), array(&entries)])]).into_bytes()
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

fn array(items: &[String]) -> String {
    format!("*{}\r\n{}", items.len(), items.concat())
}
