//! Commands on their way out: one growing buffer, no allocation for an argument, and no way to miscount.

/// A buffer larger than this is not kept for the next use.
const BUFFER_BYTES_KEPT_MAX: usize = 1024 * 1024;

/// Commands that are sent together, in order.
#[derive(Debug, Default, Clone)]
pub struct Pipeline {
    buffer: Vec<u8>,
    commands: usize,
}

impl Pipeline {
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a command. It is complete when the returned value goes.
    pub fn command(&mut self, name: impl AsRef<[u8]>) -> Command<'_> {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(b"*0\r\n");
        let mut command = Command { pipeline: self, start, words: 0 };
        command.arg(name);
        command
    }

    /// A command whose words are all at hand.
    pub fn push<W: AsRef<[u8]>>(&mut self, words: &[W]) {
        debug_assert!(!words.is_empty(), "a command has a name");
        if let Some((name, arguments)) = words.split_first() {
            let mut command = self.command(name);
            for argument in arguments {
                command.arg(argument);
            }
        }
    }

    /// Adds the commands of another pipeline behind these.
    pub fn append(&mut self, other: &Pipeline) {
        self.buffer.extend_from_slice(&other.buffer);
        self.commands += other.commands;
    }

    /// How many commands there are, and so how many replies will come.
    pub fn len(&self) -> usize {
        self.commands
    }

    pub fn is_empty(&self) -> bool {
        self.commands == 0
    }

    pub fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// Empties the pipeline for the next use. An ordinary buffer is kept, a huge one is given back.
    pub fn clear(&mut self) {
        self.commands = 0;
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_BYTES_KEPT_MAX);
    }
}

/// A command being written. Every method adds one word.
pub struct Command<'a> {
    pipeline: &'a mut Pipeline,
    start: usize,
    words: usize,
}

impl Command<'_> {
    pub fn arg(&mut self, argument: impl AsRef<[u8]>) -> &mut Self {
        self.arg_parts(&[argument.as_ref()])
    }

    pub fn args<W: AsRef<[u8]>>(&mut self, arguments: impl IntoIterator<Item = W>) -> &mut Self {
        arguments.into_iter().for_each(|argument| {
            self.arg(argument);
        });
        self
    }

    /// Names and values in turn.
    pub fn arg_pairs<'a, N, V>(&mut self, pairs: impl IntoIterator<Item = &'a (N, V)>) -> &mut Self
    where
        N: AsRef<[u8]> + 'a,
        V: AsRef<[u8]> + 'a,
    {
        pairs.into_iter().for_each(|(name, value)| {
            self.arg(name).arg(value);
        });
        self
    }

    pub fn arg_u64(&mut self, argument: u64) -> &mut Self {
        self.arg(Decimal::new(argument).as_bytes())
    }

    pub fn arg_i64(&mut self, argument: i64) -> &mut Self {
        let sign: &[u8] = if argument < 0 { b"-" } else { b"" };
        self.arg_parts(&[sign, Decimal::new(argument.unsigned_abs()).as_bytes()])
    }

    /// A position such as a stream id: two numbers joined by a hyphen.
    pub fn arg_position(&mut self, major: u64, minor: u64) -> &mut Self {
        self.arg_parts(&[Decimal::new(major).as_bytes(), b"-", Decimal::new(minor).as_bytes()])
    }

    /// One argument made of several parts, without putting them together first.
    pub fn arg_parts(&mut self, parts: &[impl AsRef<[u8]>]) -> &mut Self {
        let length: usize = parts.iter().map(|part| part.as_ref().len()).sum();
        let header = Header::new(length as u64);
        let header = header.as_bytes();
        let buffer = &mut self.pipeline.buffer;
        buffer.reserve(header.len() + length + 2);
        buffer.extend_from_slice(header);
        for part in parts {
            buffer.extend_from_slice(part.as_ref());
        }
        buffer.extend_from_slice(b"\r\n");
        self.words += 1;
        self
    }

    /// One argument that `write` appends to the buffer, for values that are encoded on the spot.
    pub fn arg_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        let buffer = &mut self.pipeline.buffer;
        let start = buffer.len();
        buffer.extend_from_slice(b"$0\r\n");
        let content = buffer.len();
        write(buffer);
        assert!(buffer.len() >= content, "an argument is appended");
        let length = buffer.len() - content;
        set_number(buffer, start + 1, length as u64);
        buffer.extend_from_slice(b"\r\n");
        self.words += 1;
        self
    }
}

impl Drop for Command<'_> {
    fn drop(&mut self) {
        set_number(&mut self.pipeline.buffer, self.start + 1, self.words as u64);
        self.pipeline.commands += 1;
    }
}

/// Replaces the one-digit number at `position`. Redis accepts no leading zero, so a longer number moves what follows
/// by its further digits; most commands have fewer than ten words and move nothing.
fn set_number(buffer: &mut Vec<u8>, position: usize, number: u64) {
    let digits = Decimal::new(number);
    let digits = digits.as_bytes();
    let further = digits.len() - 1;
    if further > 0 {
        let end = buffer.len();
        buffer.resize(end + further, 0);
        buffer.copy_within(position + 1..end, position + 1 + further);
    }
    buffer[position..=position + further].copy_from_slice(digits);
}

/// The line in front of an argument, on the stack.
struct Header {
    line: [u8; 23],
    start: u8,
}

impl Header {
    fn new(length: u64) -> Self {
        let mut line = [0; 23];
        let mut start = line.len() - 2;
        line[start..].copy_from_slice(b"\r\n");
        start = write_digits(&mut line[..start], length) - 1;
        line[start] = b'$';
        Self { line, start: start as u8 }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.line[usize::from(self.start)..]
    }
}

/// A number as decimal digits on the stack.
struct Decimal {
    digits: [u8; 20],
    start: u8,
}

impl Decimal {
    fn new(number: u64) -> Self {
        let mut digits = [0; 20];
        let start = write_digits(&mut digits, number) as u8;
        Self { digits, start }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.digits[usize::from(self.start)..]
    }
}

/// Fills `space` from its end; answers where the digits begin.
fn write_digits(space: &mut [u8], mut number: u64) -> usize {
    let mut start = space.len();
    loop {
        start -= 1;
        space[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return start;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pipeline: &Pipeline) -> &str {
        std::str::from_utf8(pipeline.bytes()).unwrap()
    }

    #[test]
    fn commands_are_counted_and_framed() {
        let mut pipeline = Pipeline::new();
        pipeline.command("PING");
        pipeline.command("SET").arg("key").arg_i64(-42);
        pipeline.push(&["GET", "key"]);
        assert_eq!(pipeline.len(), 3);
        assert_eq!(
            text(&pipeline),
            "*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$3\r\n-42\r\n*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n"
        );
        pipeline.clear();
        assert!(pipeline.is_empty() && pipeline.bytes().is_empty());
    }

    #[test]
    fn a_long_command_moves_its_words_for_a_longer_count() {
        for words in [1_usize, 8, 9, 10, 98, 99, 100, 1000] {
            let mut pipeline = Pipeline::new();
            let mut command = pipeline.command("HDEL");
            for _ in 0..words {
                command.arg("f");
            }
            drop(command);
            let expected = format!("*{}\r\n$4\r\nHDEL\r\n{}", words + 1, "$1\r\nf\r\n".repeat(words));
            assert_eq!(text(&pipeline), expected);
        }
    }

    #[test]
    fn an_argument_written_in_place_equals_one_at_hand() {
        for length in [0, 1, 9, 10, 100, 70_000] {
            let value = vec![b'x'; length];
            let (half, rest) = value.split_at(length / 2);
            let (mut one, mut two, mut three) = (Pipeline::new(), Pipeline::new(), Pipeline::new());
            one.command("ECHO").arg(&value);
            two.command("ECHO").arg_with(|buffer| buffer.extend_from_slice(&value));
            three.command("ECHO").arg_parts(&[half, rest]);
            assert_eq!(one.bytes(), two.bytes());
            assert_eq!(one.bytes(), three.bytes());
        }
    }

    #[test]
    fn numbers_are_written_in_full() {
        for number in [0, 9, 10, 255, 1_000_000, u64::MAX] {
            assert_eq!(Decimal::new(number).as_bytes(), number.to_string().as_bytes());
        }
        let mut pipeline = Pipeline::new();
        pipeline.command("X").arg_position(1_700_000_000_000, 0);
        assert!(text(&pipeline).ends_with("\r\n$15\r\n1700000000000-0\r\n"));
        for number in [i64::MIN, -1, 0, i64::MAX] {
            let mut pipeline = Pipeline::new();
            pipeline.command("X").arg_i64(number);
            assert!(text(&pipeline).ends_with(&format!("\r\n{number}\r\n")));
        }
    }
}
