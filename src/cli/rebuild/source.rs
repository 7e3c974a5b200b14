//! The file of a rebuild, as it was when the run began.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::cli::exit::Usage;

/// So much of its beginning and its end tells a file from others, together with its length and the time of its last change.
const TOLD_BYTES: u64 = 64 * 1024;

pub(super) struct Source {
    pub path: PathBuf,
    pub length: u64,
    /// What tells this file from others.
    pub identity: String,
    stamp: Stamp,
}

/// Which file it is, its length and when it was changed last, in seconds and nanoseconds.
type Stamp = (u64, u64, i64, i64);

impl Source {
    pub fn of(path: &Path) -> Result<Source, Usage> {
        let unreadable = |error: io::Error| Usage(format!("{}: {error}", path.display()));
        let mut file = File::open(path).map_err(unreadable)?;
        let data = file.metadata().map_err(unreadable)?;
        if !data.is_file() {
            return Err(Usage(format!("{}: expected a regular file, which can be read again", path.display())));
        }
        let identity = identity(&mut file, &data).map_err(unreadable)?;
        Ok(Source { path: path.to_owned(), length: data.len(), identity, stamp: stamp(&data) })
    }

    /// Why it may not have all users, although it was read to its end.
    pub fn doubt(&self) -> io::Result<Option<&'static str>> {
        let mut file = File::open(&self.path)?;
        if stamp(&file.metadata()?) != self.stamp {
            return Ok(Some("the file was changed while it was read"));
        }
        let mut last = [0];
        if self.length > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        Ok((last != *b"\n").then_some("the file does not end with the end of a line, so it may be cut off"))
    }
}

fn stamp(data: &Metadata) -> Stamp {
    (data.ino(), data.len(), data.mtime(), data.mtime_nsec())
}

/// A number from its length, time, beginning and end.
fn identity(file: &mut File, data: &Metadata) -> io::Result<String> {
    let mut told = data.len().to_be_bytes().to_vec();
    told.extend([data.mtime(), data.mtime_nsec()].into_iter().flat_map(i64::to_be_bytes));
    Read::by_ref(file).take(TOLD_BYTES).read_to_end(&mut told)?;
    file.seek(SeekFrom::Start(data.len().saturating_sub(TOLD_BYTES)))?;
    file.take(TOLD_BYTES).read_to_end(&mut told)?;
    Ok(sha1_smol::Sha1::from(told).hexdigest()[..16].to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn a_file_that_was_changed_in_its_middle_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.ndjson");
        let mut text = vec![b'x'; 200 * 1024];
        text.push(b'\n');
        std::fs::write(&path, &text).unwrap();
        let source = Source::of(&path).unwrap();
        assert_eq!(source.identity, Source::of(&path).unwrap().identity);
        assert_eq!(source.doubt().unwrap(), None);
        text[100 * 1024] = b'y';
        std::fs::write(&path, &text).unwrap();
        let later = SystemTime::now() + Duration::from_millis(1);
        File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        assert_ne!(source.identity, Source::of(&path).unwrap().identity);
        assert_eq!(source.doubt().unwrap(), Some("the file was changed while it was read"));
    }

    #[test]
    fn a_file_that_may_be_cut_off_is_doubted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users.ndjson");
        for (text, cut) in [("", true), ("{}", true), ("{}\n{", true), ("{}\n", false)] {
            std::fs::write(&path, text).unwrap();
            let doubt = Source::of(&path).unwrap().doubt().unwrap();
            assert_eq!(doubt.is_some_and(|why| why.ends_with("cut off")), cut, "{text:?}");
        }
    }
}
