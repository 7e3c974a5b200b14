//! How far a rebuild has come, in a file beside the one it reads: what stands before that place is applied.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    /// Which file.
    pub file: String,
    /// The moment of the rebuild, Unix milliseconds.
    pub moment: u64,
    pub authoritative: bool,
    /// Bytes and lines that are applied.
    pub offset: u64,
    pub line: u64,
}

impl Position {
    /// Whether this is a place in the same rebuild.
    pub fn is_of(&self, other: &Position) -> bool {
        (&self.file, self.moment, self.authoritative) == (&other.file, other.moment, other.authoritative)
    }
}

/// The file of a rebuild's position.
pub(super) fn path(file: &Path) -> PathBuf {
    let mut path = OsString::from(file);
    path.push(".progress");
    path.into()
}

/// None where there is no such file; an unreadable one is an error, so that nothing is begun anew unasked.
pub(super) fn read(file: &Path) -> io::Result<Option<Position>> {
    match std::fs::read(path(file)) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whole or not at all, whenever the process or the machine ends.
pub(super) fn write(file: &Path, position: &Position) -> io::Result<()> {
    let path = path(file);
    let mut new = OsString::from(&path);
    new.push(".new");
    let mut written = File::create(&new)?;
    written.write_all(&serde_json::to_vec(position)?)?;
    written.sync_data()?;
    std::fs::rename(new, path)
}

pub(super) fn remove(file: &Path) -> io::Result<()> {
    match std::fs::remove_file(path(file)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users.ndjson");
        std::fs::write(&file, "{}\n").unwrap();
        assert_eq!(read(&file).unwrap(), None);
        let position = Position { file: "one".to_owned(), moment: 7, authoritative: true, offset: 3, line: 1 };
        write(&file, &position).unwrap();
        assert_eq!(read(&file).unwrap(), Some(position.clone()));
        assert!(!position.is_of(&Position { file: "other".to_owned(), ..position.clone() }));
        std::fs::write(path(&file), "half of").unwrap();
        assert!(read(&file).is_err());
        remove(&file).unwrap();
        remove(&file).unwrap();
        assert_eq!(read(&file).unwrap(), None);
    }
}
