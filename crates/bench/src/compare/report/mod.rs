//! The reports of a study: results.csv, results.json, summary.md, report.html and the charts. All
//! are made from an [`Outcome`] alone, so that they can be made again from results.json.

pub mod charts;
mod colour;
pub mod csv;
pub mod html;
pub mod json;
pub mod markdown;
mod text;
pub mod view;

use std::fs;
use std::io;
use std::path::Path;

use crate::compare::outcome::Outcome;

/// The directory of the charts, inside the directory of the reports.
const PICTURES: &str = "pictures";

/// Writes all reports of a study's `outcome` into `folder`.
pub fn write(outcome: &Outcome, folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder.join(PICTURES))?;
    json::write(outcome, folder)?;
    fs::write(folder.join("results.csv"), csv::text(outcome)?)?;
    fs::write(folder.join("summary.md"), markdown::text(outcome))?;
    let groups = charts::all(outcome);
    // Charts of an earlier study in the same directory would be mistaken for charts of this study.
    for entry in fs::read_dir(folder.join(PICTURES))?.flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "svg") {
            fs::remove_file(entry.path())?;
        }
    }
    for picture in groups.iter().flat_map(|group| &group.pictures) {
        fs::write(folder.join(PICTURES).join(format!("{}.svg", picture.id)), picture.file())?;
    }
    fs::write(folder.join("report.html"), html::page(outcome, &groups))
}
