//! The syntax of configuration files: one directive per line. Blanks separate words, and words may
//! be in quotes, as in a shell. `#` begins a comment.

use std::path::PathBuf;

use stdx::quoted::split_quoted;

/// A line that sets an option or contains another directive, such as `include`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    /// The number of the line in the configuration text, from 1.
    pub line_number: usize,
    /// The line of the configuration as written, without the blanks around it.
    pub line: Vec<u8>,
    /// The first word of the line, in lower case: the name of the directive.
    pub name: Vec<u8>,
    /// The words of the line after the name of the directive.
    pub words: Vec<Vec<u8>>,
}

/// An invalid line of the configuration, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The position of the invalid line in the file or on the command line.
    pub place: Place,
    /// The file that contains the line; `None` if it is not in a file.
    pub file: Option<PathBuf>,
    /// The line as written. For the command line: the equivalent line of a file.
    pub line: Vec<u8>,
    /// The reason why the line of the configuration is invalid.
    pub reason: String,
}

/// The position of an invalid line of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line of a configuration file; the first has number 1.
    FileLine(usize),
    /// An option of the command line; the first has number 1.
    CommandLine(usize),
}

impl ConfigError {
    /// Creates the error for an invalid `directive` of a configuration file.
    pub fn of(directive: &Directive, reason: impl Into<String>) -> Self {
        Self {
            place: Place::FileLine(directive.line_number),
            file: None,
            line: directive.line.clone(),
            reason: reason.into(),
        }
    }
}

/// An error in a file has several lines, the same as in Redis, because tools search for them. An
/// error on the command line is one line: the option, then the reason.
impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (line, reason) = (String::from_utf8_lossy(&self.line), &self.reason);
        match self.place {
            Place::FileLine(number) => {
                writeln!(f, "\n*** FATAL CONFIG FILE ERROR (Saker {}) ***", env!("CARGO_PKG_VERSION"))?;
                write!(f, "Reading the configuration file, at line {number}")?;
                match &self.file {
                    Some(file) => writeln!(f, " of {}", file.display())?,
                    None => writeln!(f)?,
                }
                write!(f, ">>> '{line}'\n{reason}")
            }
            Place::CommandLine(number) => {
                let end = if reason.ends_with(['.', '?']) { "" } else { "." };
                write!(f, "saker-server: option {number} of the command line, '{line}': {reason}{end} ")?;
                f.write_str("Try 'saker-server --help'.")
            }
        }
    }
}

impl std::error::Error for ConfigError {}

/// Parses the text of a configuration file into directives. O(bytes). Does not check that the
/// options exist or that their values are valid.
pub fn parse_config(text: &[u8]) -> Result<Vec<Directive>, ConfigError> {
    let lines = text.split(|&byte| byte == b'\n').enumerate();
    let directives = lines.filter_map(|(index, line)| parse_line(index + 1, line).transpose());
    directives.collect()
}

/// Parses one line; returns `None` for a blank line or a comment.
pub fn parse_line(line_number: usize, line: &[u8]) -> Result<Option<Directive>, ConfigError> {
    let line = line.trim_ascii();
    if line.is_empty() || line.starts_with(b"#") {
        return Ok(None);
    }
    let mut directive = Directive { line_number, line: line.to_vec(), name: Vec::new(), words: Vec::new() };
    let Some(mut words) = split_quoted(line) else {
        return Err(ConfigError::of(&directive, "Unbalanced quotes in configuration line"));
    };
    if words.is_empty() {
        return Ok(None);
    }
    directive.name = words.remove(0).to_ascii_lowercase();
    directive.words = words;
    Ok(Some(directive))
}

/// Returns a word as a configuration file contains it: in quotes if the parser would otherwise read
/// another word.
pub fn quoted_if_needed(word: &[u8]) -> Vec<u8> {
    let plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\');
    if !word.is_empty() && word.iter().all(plain) { word.to_vec() } else { quoted(word) }
}

/// Returns the bytes in double quotes, with escapes, so that the parser reads the same bytes.
pub fn quoted(bytes: &[u8]) -> Vec<u8> {
    let mut text = vec![b'"'];
    for &byte in bytes {
        match byte {
            b'"' | b'\\' => text.extend([b'\\', byte]),
            b'\n' => text.extend(b"\\n"),
            b'\r' => text.extend(b"\\r"),
            b'\t' => text.extend(b"\\t"),
            b' '..=b'~' => text.push(byte),
            _ => text.extend(format!("\\x{byte:02x}").bytes()),
        }
    }
    text.push(b'"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_have_a_name_and_words() {
        let text = b"# a remark\n\n  PORT 7000\r\nrequirepass \"a b\\x41\"\n save '' \nbind a b";
        let directives = parse_config(text).expect("well formed");
        let shown: Vec<(usize, String)> = directives
            .iter()
            .map(|directive| {
                let words = [vec![directive.name.clone()], directive.words.clone()].concat();
                (directive.line_number, String::from_utf8_lossy(&words.join(&b'|')).into_owned())
            })
            .collect();
        let expected = [(3, "port|7000"), (4, "requirepass|a bA"), (5, "save|"), (6, "bind|a|b")];
        assert_eq!(shown, expected.map(|(number, words)| (number, words.to_owned())));
    }

    #[test]
    fn an_open_quote_is_told_with_its_line() {
        let error = parse_config(b"port 1\n\nmaxmemory \"abc\n").expect_err("an open quote");
        let expected = format!(
            "\n*** FATAL CONFIG FILE ERROR (Saker {}) ***\nReading the configuration file, at line 3\n>>> \
             'maxmemory \"abc'\nUnbalanced quotes in configuration line",
            env!("CARGO_PKG_VERSION")
        );
        assert_eq!(error.to_string(), expected);
    }
}
