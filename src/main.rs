//! The `heyday` process: everything is in the library, under [`heyday::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    heyday::cli::run(std::env::args_os()).into()
}
