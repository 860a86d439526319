//! The reader of the program's arguments: `saker-server [FILE] [--name value ...] [-]`.
//!
//! The sources are read in this order: the file, standard input (`-`), the command line. Later
//! lines win. `include` reads another file in place of its line; the file's name may contain
//! wildcards.

use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use stdx::glob::glob_match;
use stdx::quoted::split_quoted;

use super::parse::{ConfigError, Directive, Place, parse_config, parse_line, quoted};
use super::readable_secrets;
use super::renames::IsCommand;
use super::store::{ConfigStore, Start, is_directive};

/// The maximum depth of nested `include` directives.
const INCLUDE_DEPTH_MAX: usize = 16;

/// The action that the arguments of the program request.
#[derive(Debug)]
pub enum Loaded {
    /// The program runs a server with these options.
    Run(Box<ConfigStore>),
    /// The program prints its version: `-v`, `--version`.
    Version,
    /// The program prints its help text: `-h`, `--help`.
    Help,
}

/// A reason why a server cannot be configured.
#[derive(Debug)]
pub enum LoadError {
    /// A line or an option of the command line is invalid.
    Config(ConfigError),
    /// A configuration file cannot be read.
    File {
        /// The path of the configuration file.
        path: PathBuf,
        /// The reason why the configuration file cannot be read.
        error: io::Error,
    },
    /// Standard input cannot be read.
    Input(io::Error),
    /// An argument of the program is not supported.
    Argument(String),
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LoadError::Config(error) => error.fmt(f),
            LoadError::File { path, error } => {
                let reason = reason_of(error);
                write!(f, "Fatal error, can't open config file '{}': {reason}", path.display())?;
                match port_in(path) {
                    Some(port) => write!(f, ". To listen on port {port}: saker-server --port {port}"),
                    None => Ok(()),
                }
            }
            LoadError::Input(error) => write!(f, "Fatal error, can't read config from stdin: {error}"),
            LoadError::Argument(argument) => {
                write!(f, "saker-server: '{argument}' is not supported. Try 'saker-server --help'.")
            }
        }
    }
}

impl std::error::Error for LoadError {}

impl From<ConfigError> for LoadError {
    fn from(error: ConfigError) -> Self {
        LoadError::Config(error)
    }
}

impl LoadError {
    /// Formats the error as one line for a client. Omits the text of the file's line, because that
    /// text may contain a password.
    pub fn in_one_line(&self) -> String {
        match self {
            LoadError::Config(ConfigError { place: Place::CommandLine(number), reason, .. }) => {
                format!("option {number} of the command line: {reason}")
            }
            LoadError::Config(ConfigError { place: Place::FileLine(number), file, reason, .. }) => match file
            {
                Some(file) => format!("line {number} of '{}': {reason}", file.display()),
                None => format!("line {number} of standard input: {reason}"),
            },
            LoadError::File { path, error } => format!("'{}': {}", path.display(), reason_of(error)),
            LoadError::Input(error) => error.to_string(),
            LoadError::Argument(argument) => format!("'{argument}' is not supported"),
        }
    }
}

/// Returns the port that the user probably meant, if the path of the configuration file is a
/// number; else `None`.
fn port_in(path: &Path) -> Option<u16> {
    path.file_name()?.to_str()?.parse().ok().filter(|&port| port != 0)
}

/// Returns the message of the operating system for an error, without the error number.
fn reason_of(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

fn path(bytes: &[u8]) -> PathBuf {
    std::ffi::OsString::from_vec(bytes.to_vec()).into()
}

/// Reads the configuration that `args` select. `args` does not include the program's name, and
/// `input` is standard input. `is_command` returns true for the command names that `rename-command`
/// accepts.
pub fn load(args: &[Vec<u8>], input: &mut dyn Read, is_command: IsCommand) -> Result<Loaded, LoadError> {
    match args {
        [first] if first == b"-v" || first == b"--version" => return Ok(Loaded::Version),
        [first] if first == b"-h" || first == b"--help" => return Ok(Loaded::Help),
        _ => {}
    }
    let mut store = ConfigStore::new(is_command);
    let mut start = Start { folder: std::env::current_dir().unwrap_or_default(), ..Start::default() };
    let mut options = args;
    if let [first, rest @ ..] = args
        && !first.starts_with(b"-")
    {
        let file =
            std::path::absolute(path(first)).map_err(|error| LoadError::File { path: path(first), error })?;
        load_file(&mut store, &file, 0)?;
        store.set_file(file);
        options = rest;
    }
    let (from_input, options) = split_input(options);
    if from_input {
        let mut text = Vec::new();
        input.read_to_end(&mut text).map_err(LoadError::Input)?;
        load_text(&mut store, &text, 0)?;
        start.input = text;
    }
    load_arguments(&mut store, options)?;
    start.options = options.to_vec();
    store.set_start(start);
    Ok(Loaded::Run(store.into()))
}

/// Reads `text` in the same way as the configuration file at the start of the server, with the
/// files that `text` includes. O(bytes).
///
/// # Errors
/// The reason why a server could not start with this configuration.
pub fn load_again(running: &ConfigStore, text: &[u8]) -> Result<ConfigStore, LoadError> {
    let mut store = running.fresh();
    load_text(&mut store, text, 0)
        .map_err(|error| in_file(error, running.file().unwrap_or(Path::new(""))))?;
    Ok(store)
}

/// Applies to `store` the lines of standard input and the command line with which the server was
/// started.
///
/// # Errors
/// The reason why a server could not start with this configuration.
pub fn load_rest_again(store: &mut ConfigStore) -> Result<(), LoadError> {
    let start = store.start().clone();
    load_text(store, &start.input, 0)?;
    load_arguments(store, &start.options)
}

/// Removes a `-`, which selects standard input, from the first or the last place. Returns true if
/// there was one, and the arguments without this `-`.
fn split_input(options: &[Vec<u8>]) -> (bool, &[Vec<u8>]) {
    match options {
        [dash, rest @ ..] if dash == b"-" => (true, rest),
        [rest @ .., dash] if dash == b"-" => (true, rest),
        _ => (false, options),
    }
}

/// Applies the options `--name value ...` of the command line to `store`.
fn load_arguments(store: &mut ConfigStore, args: &[Vec<u8>]) -> Result<(), LoadError> {
    let refused = args.iter().enumerate().find(|(at, arg)| {
        let is_mode = matches!(arg.as_slice(), b"--test-memory" | b"--check-system" | b"--sentinel");
        is_mode || (*at == 0 && arg.starts_with(b"-") && !arg.starts_with(b"--"))
    });
    if let Some((_, argument)) = refused {
        return Err(LoadError::Argument(String::from_utf8_lossy(argument).into_owned()));
    }
    for (index, line) in argument_lines(args).iter().enumerate() {
        let on_command_line = |error: LoadError| match error {
            LoadError::Config(error) => {
                LoadError::Config(ConfigError { place: Place::CommandLine(index + 1), ..error })
            }
            other => other,
        };
        let parsed = parse_line(index + 1, line).map_err(|error| on_command_line(error.into()))?;
        let Some(mut directive) = parsed else { continue };
        split_words(&mut directive);
        load_directive(store, &directive, 0).map_err(on_command_line)?;
    }
    Ok(())
}

/// Converts a command line to lines of a configuration file, by the rules of Redis. An argument
/// that begins with `--` begins a line, unless it follows a name without a value: then it is the
/// value. Name and value may be one argument (`"--port 7000"`). `--save` without a value means no
/// save points.
fn argument_lines(args: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut lines: Vec<Vec<u8>> = Vec::new();
    let mut wants_value = false;
    for (at, arg) in args.iter().enumerate() {
        let next_is_value = args.get(at + 1).is_some_and(|next| !next.starts_with(b"--"));
        match (arg.strip_prefix(b"--"), lines.last_mut()) {
            (Some(b"save"), _) if !wants_value && !next_is_value => lines.push(b"save \"\"".to_vec()),
            (Some(name), _) if !wants_value => {
                lines.push(name.to_vec());
                wants_value = split_quoted(name).is_some_and(|words| words.len() == 1);
                continue;
            }
            (_, Some(line)) => {
                line.push(b' ');
                line.extend(quoted(arg));
            }
            (_, None) => lines.push(quoted(arg)),
        }
        wants_value = false;
    }
    lines
}

/// Splits a single quoted value into its words, if the option takes several words.
fn split_words(directive: &mut Directive) {
    let option = super::table::find(&directive.name);
    if let [words] = directive.words.as_slice()
        && !words.is_empty()
        && option.is_some_and(|named| named.id.option().kind.takes_words())
    {
        let words = words.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        directive.words = words.map(<[u8]>::to_vec).collect();
    }
}

fn load_file(store: &mut ConfigStore, file: &Path, depth: usize) -> Result<(), LoadError> {
    let failed = |error| LoadError::File { path: file.to_owned(), error };
    if store.base().is_some() && fs::metadata(file).is_ok_and(|found| !found.is_file()) {
        // Reading a pipe would block, perhaps forever.
        return Err(failed(io::Error::other("not a regular file, so it cannot be read a second time")));
    }
    let text = fs::read(file).map_err(failed)?;
    if is_unrepeatable(file) {
        store.set_unrepeatable_file(file.to_owned());
    }
    if let Some(secret) = readable_secrets::find(file, &text) {
        store.add_readable_secret(secret);
    }
    load_text(store, &text, depth).map_err(|error| in_file(error, file))
}

/// Adds the name of the configuration file to an error that does not name a file yet. With nested
/// `include` directives, the error names the innermost file, which contains the line.
fn in_file(error: LoadError, file: &Path) -> LoadError {
    match error {
        LoadError::Config(error) if error.file.is_none() => {
            LoadError::Config(ConfigError { file: Some(file.to_owned()), ..error })
        }
        other => other,
    }
}

/// Returns true if another process cannot read the same contents again. This is so for a pipe, and
/// for a name such as /dev/stdin, which refers to another file in each process.
fn is_unrepeatable(file: &Path) -> bool {
    file.starts_with("/dev") || file.starts_with("/proc") || !file.is_file()
}

fn load_text(store: &mut ConfigStore, text: &[u8], depth: usize) -> Result<(), LoadError> {
    parse_config(text)?.iter().try_for_each(|directive| load_directive(store, directive, depth))
}

/// The directives of Redis that are refused, each with the reason. To ignore them would leave the
/// server less protected than its configuration says.
const REFUSED: &[(&[u8], &str)] =
    &[(b"loadmodule", "modules are not supported"), (b"sentinel", "Sentinel is not supported")];

fn load_directive(store: &mut ConfigStore, directive: &Directive, depth: usize) -> Result<(), LoadError> {
    if let Some((_, why)) = REFUSED.iter().find(|(name, _)| *name == directive.name) {
        return Err(ConfigError::of(directive, *why).into());
    }
    if directive.name == b"include" {
        let [pattern] = directive.words.as_slice() else {
            return Err(ConfigError::of(directive, "wrong number of arguments").into());
        };
        if depth == INCLUDE_DEPTH_MAX {
            return Err(ConfigError::of(directive, "too many nested includes").into());
        }
        let files = included(store.base().unwrap_or(Path::new("")), pattern);
        return files.iter().try_for_each(|file| load_file(store, file, depth + 1));
    }
    let refused = |reason: super::Refusal| {
        let hint = unknown_hint(&directive.name).unwrap_or_default();
        ConfigError::of(directive, format!("{reason}{hint}"))
    };
    Ok(store.load(&directive.name, &directive.words).map_err(refused)?)
}

/// Returns the message for a directive that does not exist; `None` if the directive exists. The
/// message suggests the option with the most similar name, if one is similar.
fn unknown_hint(name: &[u8]) -> Option<String> {
    if is_directive(name) || super::table::find(name).is_some() {
        return None;
    }
    let name = String::from_utf8_lossy(name);
    let hint = match super::table::nearest(&name) {
        Some(nearest) => format!(": there is no option '{name}'; did you mean '{nearest}'?"),
        None => format!(": there is no option '{name}'; 'man saker.conf' and docs/options.md list all"),
    };
    Some(hint)
}

/// Returns the files that an `include` names, sorted by name. Without wildcards it returns the file
/// itself, which may be missing. A relative name refers to `base`.
fn included(base: &Path, pattern: &[u8]) -> Vec<PathBuf> {
    let is_wild = |part: &[u8]| part.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['));
    if !is_wild(pattern) {
        return vec![base.join(path(pattern))];
    }
    let mut found = vec![if pattern.starts_with(b"/") { PathBuf::from("/") } else { base.to_owned() }];
    for part in pattern.split(|&byte| byte == b'/').filter(|part| !part.is_empty()) {
        let step = if is_wild(part) { matching } else { named };
        found = found.into_iter().flat_map(|folder| step(&folder, part)).collect();
    }
    found.sort();
    found
}

/// Returns the entry of `folder` with this name; an empty list if there is none.
fn named(folder: &Path, name: &[u8]) -> Vec<PathBuf> {
    Some(folder.join(path(name))).filter(|path| path.exists()).into_iter().collect()
}

/// Returns the entries of `folder` that match `part`, a part of a pattern between slashes. A name
/// that begins with a dot matches only a pattern that begins with a dot.
fn matching(folder: &Path, part: &[u8]) -> Vec<PathBuf> {
    let folder_to_read = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    // A folder that cannot be read has no matching files.
    let entries = fs::read_dir(folder_to_read).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    let matches = |name: &std::ffi::OsString| {
        let name = name.as_encoded_bytes();
        name.starts_with(b".") == part.starts_with(b".") && glob_match(part, name)
    };
    names.filter(matches).map(|name| folder.join(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn try_load(args: &[&str], input: &str) -> Result<Loaded, String> {
        let args: Vec<Vec<u8>> = args.iter().map(|arg| arg.as_bytes().to_vec()).collect();
        load(&args, &mut input.as_bytes(), crate::commands::is_command).map_err(|error| error.to_string())
    }

    fn run(args: &[&str], input: &str) -> ConfigStore {
        match try_load(args, input) {
            Ok(Loaded::Run(store)) => *store,
            other => panic!("{args:?}: {other:?}"),
        }
    }

    fn shown(store: &ConfigStore, names: &[&str]) -> Vec<String> {
        names.iter().map(|name| store.shown(name)).collect()
    }

    fn fails(args: &[&str], text: &str) {
        let error = try_load(args, "").expect_err("refused");
        assert!(error.contains(text), "{args:?}: {error}");
    }

    #[test]
    fn the_command_line_wins_over_input_and_file() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let file = folder.path().join("a.conf");
        fs::write(&file, "timeout 1\nhz 1\nsave 1 1\nmaxclients 5\n").expect("written");
        let file = file.to_str().expect("UTF-8");
        let store = run(&[file, "--timeout", "3", "--save", "2", "2", "-"], "hz 2\ntimeout 2");
        assert_eq!(shown(&store, &["timeout", "hz", "maxclients", "save"]), ["3", "2", "5", "1 1 2 2"]);
        assert_eq!(store.file(), Some(Path::new(file)));
        let store = run(&[file, "--save", "", "--timeout", "4"], "");
        assert_eq!(shown(&store, &["save", "timeout"]), ["", "4"]);
        assert_eq!(run(&["-"], "port 7").shown("port"), "7");
        assert_eq!(run(&["--save", "--port", "8"], "").shown("port"), "8");
        assert_eq!(run(&["--timeout 5", "--hz '7'"], "").shown("timeout"), "5");
        let behind_file = ["timeout", "6", "--hz", "7"];
        let behind_file: Vec<Vec<u8>> = behind_file.iter().map(|arg| arg.as_bytes().to_vec()).collect();
        let lines = argument_lines(&behind_file);
        assert_eq!(lines, [b"\"timeout\" \"6\"".to_vec(), b"hz \"7\"".to_vec()]);
        let store =
            run(&["--proc-title-template", "--save", "--save", "--shutdown-on-sigint", "now save"], "");
        assert_eq!(store.shown("proc-title-template"), "--save");
        assert_eq!(store.shown("shutdown-on-sigint"), "save now");
        assert_eq!(run(&["--bind", "127.0.0.1 ::1"], "").shown("bind"), "127.0.0.1 ::1");
        assert_eq!(run(&["--slowlog-log-slower-than", "-1"], "").shown("slowlog-log-slower-than"), "-1");
    }

    #[test]
    fn files_include_others_in_the_order_of_their_names() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
        write("b.conf", "timeout 2\nhz 2");
        write("a.conf", "timeout 1\nmaxclients 9");
        write(".c.conf", "timeout 3");
        write("self.cnf", "include self.cnf");
        let main = folder.path().join("main");
        fs::write(&main, format!("hz 1\ninclude {}/*.conf\nmaxclients 4\n", folder.path().display()))
            .expect("written");
        let store = run(&[main.to_str().expect("UTF-8")], "");
        assert_eq!(shown(&store, &["timeout", "hz", "maxclients"]), ["2", "2", "4"]);
        let own = folder.path().join("self.cnf");
        fs::write(&own, format!("include {}", own.display())).expect("written");
        fails(&[own.to_str().expect("UTF-8")], "too many nested includes");
    }

    #[test]
    fn errors_say_where() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let file = folder.path().join("a.conf");
        let check = |text: &str, error: &str| {
            fs::write(&file, text).expect("written");
            let file = file.to_str().expect("UTF-8");
            fails(&[file], &error.replace("FILE", file));
        };
        check("\n\nfoo 1", "at line 3 of FILE\n>>> 'foo 1'\nBad directive or wrong number of arguments");
        check("port 1 2", "at line 1 of FILE\n>>> 'port 1 2'\nwrong number of arguments");
        check("port", "at line 1 of FILE\n>>> 'port'\nwrong number of arguments");
        check(
            "user a on\nuser a off",
            "Duplicate user found. A user can only be defined once in config files",
        );
        check("user", "wrong number of arguments");
        check(
            "hz 1\nrename-command A B",
            "at line 2 of FILE\n>>> 'rename-command A B'\nNo such command in rename-command",
        );
        check("rename-command get", "Bad directive or wrong number of arguments");
        check("include /no/such/file", "can't open config file '/no/such/file': No such file or directory");
        fails(
            &["/no/such/file"],
            "Fatal error, can't open config file '/no/such/file': No such file or directory",
        );
        fails(
            &["--port", "abc"],
            "saker-server: option 1 of the command line, 'port \"abc\"': argument couldn't be parsed into an \
             integer. Try 'saker-server --help'.",
        );
        let foo = "option 2 of the command line, 'foo': Bad directive or wrong number of arguments: there is no \
                   option 'foo'; 'man saker.conf' and docs/options.md list all. Try";
        fails(&["--port", "1", "--foo"], foo);
        let prot =
            "Bad directive or wrong number of arguments: there is no option 'prot'; did you mean 'port'? Try";
        fails(&["--prot", "1"], prot);
        fails(&["--maxmemmory", "1"], "did you mean 'maxmemory'?");
        fails(&["--max-memory", "1"], "did you mean 'maxmemory'?");
        fails(&["--PORT", "x"], "argument couldn't be parsed into an integer. Try");
        check(
            "io-thread 1",
            "wrong number of arguments: there is no option 'io-thread'; did you mean 'io-threads'?",
        );
        fails(
            &["/no/such/7970"],
            "No such file or directory. To listen on port 7970: saker-server --port 7970",
        );
        fails(&["--port"], "wrong number of arguments");
        fails(&["--port", "--hz", "7"], "'port \"--hz\" \"7\"': wrong number of arguments");
        fails(&["--shutdown-on-sigint", "save nosave"], "SAVE and NOSAVE can't be used simultaneously");
        fails(&["--sentinel"], "'--sentinel' is not supported");
        fails(&["-x"], "'-x' is not supported");
    }

    #[test]
    fn version_and_help() {
        assert!(matches!(try_load(&["-v"], ""), Ok(Loaded::Version)));
        assert!(matches!(try_load(&["--version"], ""), Ok(Loaded::Version)));
        assert!(matches!(try_load(&["-h"], ""), Ok(Loaded::Help)));
        assert!(matches!(try_load(&["--help"], ""), Ok(Loaded::Help)));
    }
}
