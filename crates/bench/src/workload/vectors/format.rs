//! Files of vectors: numpy's `.npy`, `.fvecs` of the TEXMEX sets, and text.
//!
//! - `.npy`, versions 1 to 3: a header with `descr`, `fortran_order` and `shape`, then the numbers.
//!   Two dimensions in C order; 32- and 64-bit floats, and integers of one byte. Source: numpy's
//!   documentation of the format.
//! - `.fvecs`: per row its length as a little-endian 32-bit integer, then 32-bit floats. Source:
//!   corpus-texmex.irisa.fr.
//! - Other files are text: a row per line, numbers separated by commas, semicolons or blanks. Empty
//!   lines and a first line with names are skipped.
//!
//! Lengths in files are not trusted: memory is allocated as rows are read.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use super::{DIMENSIONS_MAX, Matrix};
use crate::BenchError;

/// The longest header of a `.npy` file, in bytes.
const HEADER_BYTES_MAX: usize = 64 * 1024;
/// The longest line of a text file, in bytes: enough for [`DIMENSIONS_MAX`] long numbers.
const LINE_BYTES_MAX: u64 = 4 << 20;

/// Reads up to `rows_max` vectors of the file at `path`. Keeps the first `dimensions` columns; all
/// if `None`. The error names the file.
pub(super) fn read(path: &Path, rows_max: usize, dimensions: Option<usize>) -> Result<Matrix, BenchError> {
    let named = |reason: String| BenchError::Usage(format!("{}: {reason}", path.display()));
    let file = File::open(path).map_err(|error| named(format!("cannot open the vectors: {error}")))?;
    let mut into = Rows { matrix: Matrix::default(), rows_max, dimensions };
    let input = BufReader::new(file);
    let read = match path.extension().and_then(|extension| extension.to_str()) {
        Some("npy") => npy(input, &mut into),
        Some("fvecs") => fvecs(input, &mut into),
        _ => text(input, &mut into),
    };
    read.map_err(named)?;
    if into.matrix.components.is_empty() {
        return Err(named("the file has no vectors".to_owned()));
    }
    Ok(into.matrix)
}

/// The rows of the file that were read so far, and the limits of their number and length.
struct Rows {
    matrix: Matrix,
    rows_max: usize,
    dimensions: Option<usize>,
}

impl Rows {
    fn is_full(&self) -> bool {
        self.matrix.rows() >= self.rows_max
    }

    /// Appends a row of the file. Returns an error if its length differs from that of the rows
    /// before, or is out of range.
    fn push(&mut self, row: &[f32]) -> Result<(), String> {
        let at = self.matrix.rows();
        let kept = self.dimensions.unwrap_or(row.len());
        if row.len() < kept || kept == 0 || row.len() > DIMENSIONS_MAX {
            return Err(format!("vector {at} has {} numbers instead of {kept}", row.len()));
        }
        if at > 0 && self.matrix.dimensions != kept {
            return Err(format!(
                "vector {at} has {} numbers instead of {}",
                row.len(),
                self.matrix.dimensions
            ));
        }
        self.matrix.dimensions = kept;
        self.matrix.components.extend_from_slice(&row[..kept]);
        Ok(())
    }
}

fn text(mut input: impl BufRead, into: &mut Rows) -> Result<(), String> {
    let (mut line, mut number) = (Vec::new(), 0);
    while !into.is_full() {
        line.clear();
        let len = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        number += 1;
        if len.map_err(|error| error.to_string())? == 0 {
            break;
        }
        let separates = |letter: char| letter == ',' || letter == ';' || letter.is_whitespace();
        let words = String::from_utf8_lossy(&line);
        let words: Vec<&str> = words.split(separates).filter(|word| !word.is_empty()).collect();
        let numbers: Result<Vec<f32>, _> = words.iter().map(|word| word.parse::<f32>()).collect();
        match numbers {
            Ok(row) if row.is_empty() => {}
            Ok(row) => into.push(&row).map_err(|reason| format!("line {number}: {reason}"))?,
            // The names of the columns.
            Err(_) if number == 1 => {}
            Err(_) => return Err(format!("line {number} is not a row of numbers")),
        }
    }
    Ok(())
}

fn fvecs(mut input: impl Read, into: &mut Rows) -> Result<(), String> {
    while !into.is_full() {
        let mut head = [0; 4];
        if input.read(&mut head[..1]).map_err(|error| error.to_string())? == 0 {
            break;
        }
        input.read_exact(&mut head[1..]).map_err(|error| error.to_string())?;
        let len = u32::from_le_bytes(head) as usize;
        if len == 0 || len > DIMENSIONS_MAX {
            return Err(format!("vector {} has {len} dimensions", into.matrix.rows()));
        }
        let mut bytes = vec![0; len * size_of::<f32>()];
        input.read_exact(&mut bytes).map_err(|error| error.to_string())?;
        into.push(&Kind::F32.numbers(&bytes))?;
    }
    Ok(())
}

/// The type of the numbers (integers or floats) in a `.npy` file.
#[derive(Clone, Copy)]
enum Kind {
    F32,
    F64,
    U8,
    I8,
}

impl Kind {
    fn of(descr: &str) -> Option<Self> {
        match descr {
            "<f4" => Some(Kind::F32),
            "<f8" => Some(Kind::F64),
            "|u1" => Some(Kind::U8),
            "|i1" => Some(Kind::I8),
            _ => None,
        }
    }

    fn len_bytes(self) -> usize {
        match self {
            Kind::F32 => 4,
            Kind::F64 => 8,
            Kind::U8 | Kind::I8 => 1,
        }
    }

    fn numbers(self, bytes: &[u8]) -> Vec<f32> {
        let f32_of = |bytes: &[u8]| bytes.try_into().map_or(f32::NAN, f32::from_le_bytes);
        let f64_of = |bytes: &[u8]| bytes.try_into().map_or(f64::NAN, f64::from_le_bytes);
        let each = bytes.chunks_exact(self.len_bytes());
        match self {
            Kind::F32 => each.map(f32_of).collect(),
            Kind::F64 => each.map(|bytes| f64_of(bytes) as f32).collect(),
            Kind::U8 => bytes.iter().map(|byte| f32::from(*byte)).collect(),
            Kind::I8 => bytes.iter().map(|byte| f32::from(byte.cast_signed())).collect(),
        }
    }
}

fn npy(mut input: impl Read, into: &mut Rows) -> Result<(), String> {
    let mut exact = |len: usize| {
        let mut bytes = vec![0; len];
        input.read_exact(&mut bytes).map(|()| bytes).map_err(|error| error.to_string())
    };
    let magic = exact(8)?;
    let wide = match (&magic[..6], magic[6]) {
        (b"\x93NUMPY", 1) => false,
        (b"\x93NUMPY", 2 | 3) => true,
        _ => return Err("not a .npy file of version 1 to 3".to_owned()),
    };
    let len = exact(if wide { 4 } else { 2 })?;
    let len = len.iter().rev().fold(0, |len, byte| len << 8 | usize::from(*byte));
    if len > HEADER_BYTES_MAX {
        return Err(format!("its header has {len} bytes"));
    }
    let header = String::from_utf8_lossy(&exact(len)?).into_owned();
    let after = |name: &str| header.split_once(&format!("'{name}':")).map(|(_, rest)| rest.trim_start());
    let descr = after("descr").and_then(|rest| rest.strip_prefix('\'')?.split('\'').next());
    let kind = descr.and_then(Kind::of).ok_or("its numbers are not f4, f8, u1 or i1, little-endian")?;
    if !after("fortran_order").is_some_and(|rest| rest.starts_with("False")) {
        return Err("its rows are in Fortran order: save numpy.ascontiguousarray of it".to_owned());
    }
    let shape = after("shape").and_then(|rest| rest.strip_prefix('(')?.split(')').next());
    let shape: Option<Vec<usize>> =
        shape.and_then(|shape| shape.split(',').map(|number| number.trim().parse().ok()).collect());
    let Some([rows, columns]) = shape.as_deref() else { return Err("it has no two dimensions".to_owned()) };
    if *columns == 0 || *columns > DIMENSIONS_MAX {
        return Err(format!("its rows have {columns} numbers"));
    }
    for _ in 0..*rows {
        if into.is_full() {
            break;
        }
        into.push(&kind.numbers(&exact(columns * kind.len_bytes())?))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads at most three vectors from a file called `name` with these bytes.
    fn read_bytes(name: &str, bytes: &[u8], dimensions: Option<usize>) -> Result<Vec<f32>, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let matrix = read(&path, 3, dimensions).map_err(|error| error.to_string())?;
        assert_eq!(matrix.components.len() % matrix.dimensions, 0);
        Ok(matrix.components)
    }

    fn npy_of(descr: &str, order: &str, shape: &str, numbers: &[u8]) -> Vec<u8> {
        let header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
        [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), numbers].concat()
    }

    fn floats(numbers: &[f32]) -> Vec<u8> {
        numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    #[test]
    fn text_has_a_row_per_line() {
        let text = b"a,b,label\n1,2,7\n\n3; 4 ;8\r\n5 6e0 9\n7,8,9\n";
        assert_eq!(read_bytes("x.csv", text, Some(2)).unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(read_bytes("x", b"1 2\n3 4", None).unwrap(), [1.0, 2.0, 3.0, 4.0]);
        for (text, reason) in [
            (&b"1,2\n3\n"[..], "line 2: vector 1 has 1 numbers instead of 2"),
            (b"1,2\n3,x\n", "line 2 is not a row of numbers"),
            (b"a,b\n", "no vectors"),
        ] {
            let error = read_bytes("x.csv", text, None).unwrap_err();
            assert!(error.contains(reason) && error.contains("x.csv"), "{error}");
        }
        assert!(read_bytes("x.csv", b"1,2\n", Some(3)).unwrap_err().contains("2 numbers instead of 3"));
    }

    #[test]
    fn fvecs_has_the_length_before_each_row() {
        let row = |numbers: &[f32]| [&(numbers.len() as u32).to_le_bytes()[..], &floats(numbers)].concat();
        let file = [row(&[1.0, 2.0]), row(&[3.0, 4.0])].concat();
        assert_eq!(read_bytes("x.fvecs", &file, None).unwrap(), [1.0, 2.0, 3.0, 4.0]);
        assert!(read_bytes("x.fvecs", &file[..14], None).is_err());
        assert!(read_bytes("x.fvecs", &[255; 8], None).unwrap_err().contains("dimensions"));
    }

    #[test]
    fn npy_has_a_header_and_numbers_of_four_types() {
        let read = |bytes: &[u8]| read_bytes("x.npy", bytes, None);
        let good = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(read(&npy_of("<f4", "False", "(2, 2)", &floats(&good))).unwrap(), good);
        let doubles: Vec<u8> = good.iter().flat_map(|number| f64::from(*number).to_le_bytes()).collect();
        assert_eq!(read(&npy_of("<f8", "False", "(2, 2)", &doubles)).unwrap(), good);
        assert_eq!(read(&npy_of("|u1", "False", "(2, 2)", &[1, 2, 3, 255])).unwrap(), [1.0, 2.0, 3.0, 255.0]);
        assert_eq!(read(&npy_of("|i1", "False", "(1, 2)", &[1, 255])).unwrap(), [1.0, -1.0]);
        for (bytes, reason) in [
            (npy_of("<f4", "True", "(2, 2)", &[]), "Fortran"),
            (npy_of(">f4", "False", "(2, 2)", &[]), "little-endian"),
            (npy_of("<f4", "False", "(2,)", &[]), "two dimensions"),
            (npy_of("<f4", "False", "(2, 99999999)", &[]), "99999999 numbers"),
            (npy_of("<f4", "False", "(9999999999, 2)", &floats(&good)), ""),
            (b"PK\x03\x04 not numpy".to_vec(), "not a .npy file"),
            (b"\x93NU".to_vec(), ""),
        ] {
            assert!(read(&bytes).unwrap_err().contains(reason), "{reason}");
        }
    }
}
