//! The command line that starts an engine: words with placeholders.

use std::path::{Path, PathBuf};

use stdx::quoted::split_quoted;

/// The values of the placeholders in an engine's command line.
#[derive(Clone, Debug)]
pub struct Places {
    /// `{port}`: a free TCP port.
    pub port: u16,
    /// `{socket}`: a Unix socket in the scratch directory.
    pub socket: PathBuf,
    /// `{threads}`: the number of I/O threads of the engine.
    pub threads: u32,
    /// `{password}`: the password of the study; empty without one.
    pub password: String,
    /// `{dir}`: the scratch directory, which is also the engine's working directory.
    pub dir: PathBuf,
    /// `{bind}`: the IP address to listen on.
    pub bind: String,
    /// `{tls_port}`: a free port for TLS.
    pub tls_port: u16,
    /// `{cert}` and `{key}`: the PEM files of the TLS certificate and its private key.
    pub certificate: (PathBuf, PathBuf),
}

const NAMES: &[&str] =
    &["{port}", "{socket}", "{threads}", "{password}", "{dir}", "{bind}", "{tls_port}", "{cert}", "{key}"];

/// Checks that `line` is not empty, closes its quotes and has only known placeholders. The error is
/// one line.
pub fn check(line: &str) -> Result<(), String> {
    let words = words(line)?;
    if words.is_empty() {
        return Err("the command line is empty".to_owned());
    }
    for word in &words {
        let mut rest = word.as_str();
        while let Some(open) = rest.find('{') {
            let known = NAMES.iter().find(|name| rest[open..].starts_with(**name));
            let Some(known) = known else {
                let close = rest[open..].find('}').map_or(rest.len(), |close| open + close + 1);
                return Err(format!(
                    "unknown placeholder {}; the known ones are {}",
                    &rest[open..close],
                    NAMES.join(" ")
                ));
            };
            rest = &rest[open + known.len()..];
        }
    }
    Ok(())
}

/// Returns the complete command line of an engine: its start command, then its TLS options.
pub fn whole(start: &str, tls_options: Option<&str>) -> String {
    tls_options.map_or_else(|| start.to_owned(), |options| format!("{start} {options}"))
}

/// Splits `line` into words and replaces the placeholders by the values in `places`. Returns an
/// error if a quote is not closed.
pub fn fill(line: &str, places: &Places) -> Result<Vec<String>, String> {
    let fill = |word: String| {
        word.replace("{port}", &places.port.to_string())
            .replace("{socket}", &places.socket.to_string_lossy())
            .replace("{threads}", &places.threads.to_string())
            .replace("{password}", &places.password)
            .replace("{dir}", &places.dir.to_string_lossy())
            .replace("{bind}", &places.bind)
            .replace("{tls_port}", &places.tls_port.to_string())
            .replace("{cert}", &places.certificate.0.to_string_lossy())
            .replace("{key}", &places.certificate.1.to_string_lossy())
    };
    Ok(words(line)?.into_iter().map(fill).collect())
}

/// Splits a line into words as a shell does. A quoted text is one word, with its spaces.
fn words(line: &str) -> Result<Vec<String>, String> {
    let words = split_quoted(line.as_bytes()).ok_or_else(|| format!("{line:?}: a quote is not closed"))?;
    Ok(words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect())
}

/// Finds the program `name`. A name with `/` is a path. Another name is searched in PATH, then in
/// the directory of saker-bench itself, so that a build of the workspace finds its own server.
pub fn find_program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let beside = std::env::current_exe().ok();
    let beside = beside.as_deref().and_then(Path::parent).map(Path::to_owned);
    let folders = std::env::split_paths(&path).chain(beside);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::study::{Length, Study};

    #[test]
    fn placeholders_are_filled_and_quotes_keep_words() {
        let places = Places {
            port: 7000,
            socket: "/tmp/s".into(),
            threads: 2,
            password: "p w".to_owned(),
            dir: "/tmp".into(),
            bind: "127.0.0.1".to_owned(),
            tls_port: 7001,
            certificate: ("/tmp/c".into(), "/tmp/k".into()),
        };
        let words =
            fill("srv --save '' --port {port} --requirepass {password} x={threads}", &places).unwrap();
        assert_eq!(words, ["srv", "--save", "", "--port", "7000", "--requirepass", "p w", "x=2"]);
    }

    #[test]
    fn unknown_placeholders_and_open_quotes_are_refused() {
        assert!(check("a {port} {socket}").is_ok());
        for line in ["", "a {prot}", "a {", "a 'b"] {
            assert!(check(line).is_err(), "{line}");
        }
    }

    #[test]
    fn programs_are_found_on_the_path() {
        assert!(find_program("sh").is_some() && find_program("/bin/sh").is_some());
        assert!(find_program("no-such-program").is_none() && find_program("/no/such").is_none());
    }

    /// Checks the command lines of the shipped studies, word by word, against
    /// `tests/golden/commands.txt`. The file holds verified options of engines that are seldom
    /// installed. `SAKER_BLESS=1` rewrites the file.
    #[test]
    fn the_shipped_studies_start_their_engines_as_they_did() {
        let places = Places {
            port: 7000,
            socket: "/scratch/engine.sock".into(),
            threads: 4,
            password: "secret".to_owned(),
            dir: "/scratch".into(),
            bind: "127.0.0.1".to_owned(),
            tls_port: 7001,
            certificate: ("/scratch/cert.pem".into(), "/scratch/key.pem".into()),
        };
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        let studies = ["client-limit", "four-engines", "io-threads", "local-and-network", "two-engines"];
        let mut text = String::new();
        for name in studies {
            let path = package.join("../../studies").join(name).with_extension("toml");
            let study = Study::read(&path, Length::Whole).unwrap();
            for engine in &study.engines {
                let start = engine.start.as_ref().unwrap().get_ref();
                let options = engine.tls_options.as_ref().map(|options| options.get_ref().as_str());
                let lines = [Some(whole(start, None)), options.map(|_| whole(start, options))];
                for line in lines.into_iter().flatten() {
                    let words = fill(&line, &places).unwrap();
                    text += &format!("{name} {}: {words:?}\n", engine.name());
                }
            }
        }
        let golden = package.join("tests/golden/commands.txt");
        if std::env::var_os("SAKER_BLESS").is_some() {
            std::fs::write(&golden, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(golden).unwrap(), text);
    }
}
