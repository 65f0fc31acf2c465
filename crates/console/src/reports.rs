//! Reports of `ottla bench` in a directory.
//!
//! No file is passed on as it is: a page is made from a report's figures, because a program that
//! writes into the directory could otherwise put any page under the console's address.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use ottla_lab::report::Report;
use serde::Serialize;

use crate::source::{Told, Untold};

/// Reports that are listed: the newest files.
const LISTED_MAX: usize = 200;

/// A larger file is not read: while it is, its text and its values are in memory.
const BYTES_MAX: u64 = 32 << 20;

/// A directory with reports.
#[derive(Debug)]
pub struct Reports {
    directory: PathBuf,
    /// What was read of each file, for as long as it stays the same file.
    read: Mutex<BTreeMap<String, (Stamp, Outcome)>>,
}

/// When a file was changed, and its size in bytes.
type Stamp = (SystemTime, u64);

/// The heading of a report, or what is wrong with the file.
type Outcome = Result<Heading, String>;

/// What a list says of a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Heading {
    /// The file's name without its extension.
    pub name: String,
    pub scenario: String,
    pub question: String,
    /// The answer, or why there is none.
    pub answer: Option<String>,
    /// `VALID` or `INVALID`.
    pub verdict: &'static str,
    /// The first reason why it is INVALID.
    pub reason: Option<String>,
    /// Milliseconds since 1970.
    pub started_at_ms: i64,
    pub targets: Vec<String>,
    pub commit: Option<String>,
}

/// What a directory holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Listing {
    /// The newest run first.
    pub reports: Vec<Heading>,
    /// Files that look like reports and cannot be read, each with what is wrong.
    pub unreadable: Vec<(String, String)>,
    /// Older files that were not looked at.
    pub cut: usize,
}

#[derive(Debug)]
struct Found {
    path: PathBuf,
    stamp: Stamp,
    is_json: bool,
}

impl Reports {
    pub fn of(directory: &Path) -> Reports {
        Reports {
            directory: directory.to_owned(),
            read: Mutex::default(),
        }
    }

    /// Lists the reports; reads only files that are new or have changed.
    pub fn list(&self) -> Told<Listing> {
        let mut files: Vec<(String, Found)> = self.files()?.into_iter().collect();
        files.sort_by_key(|(_, found)| std::cmp::Reverse(found.stamp));
        let cut = files.len().saturating_sub(LISTED_MAX);
        files.truncate(LISTED_MAX);
        let mut before = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let mut listing = Listing {
            cut,
            ..Listing::default()
        };
        let mut now = BTreeMap::new();
        for (name, found) in files {
            let known = before.remove(&name).filter(|(stamp, _)| *stamp == found.stamp);
            let outcome = known.map_or_else(
                || found.read().map(|report| Heading::of(&name, &report)),
                |(_, outcome)| outcome,
            );
            match &outcome {
                Ok(heading) => listing.reports.push(heading.clone()),
                Err(what) => listing.unreadable.push((name.clone(), what.clone())),
            }
            now.insert(name, (found.stamp, outcome));
        }
        *before = now;
        listing
            .reports
            .sort_by_key(|heading| std::cmp::Reverse(heading.started_at_ms));
        Ok(listing)
    }

    /// Reads one report; `None`: there is none of this name.
    pub fn one(&self, name: &str) -> Told<Option<Report>> {
        // Only a name that was found in the directory is opened, so that none leads out of it.
        let found = self.files()?.remove(name);
        let read = found.map(|found| found.read()).transpose();
        read.map_err(|what| Untold(format!("The report {}: {what}.", crate::draw::text::name(name))))
    }

    /// Regular files by their names without extension; of two the JSON.
    fn files(&self) -> Told<BTreeMap<String, Found>> {
        let cannot = |error: io::Error| {
            let directory = self.directory.display();
            Untold(format!("The directory {directory} cannot be read: {error}."))
        };
        let mut by_name: BTreeMap<String, Found> = BTreeMap::new();
        for entry in std::fs::read_dir(&self.directory).map_err(cannot)? {
            let path = entry.map_err(cannot)?.path();
            let Some((name, found)) = Found::at(path) else {
                continue;
            };
            if found.is_json || !by_name.contains_key(&name) {
                by_name.insert(name, found);
            }
        }
        Ok(by_name)
    }
}

impl Found {
    fn at(path: PathBuf) -> Option<(String, Found)> {
        let extension = path.extension()?.to_str()?;
        let is_json = extension == "json";
        if !is_json && extension != "html" {
            return None;
        }
        let name = path.file_stem()?.to_str()?.to_owned();
        // One that was removed meanwhile is not there.
        let metadata = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?;
        let stamp = (metadata.modified().ok()?, metadata.len());
        Some((name, Found { path, stamp, is_json }))
    }

    fn read(&self) -> Result<Report, String> {
        if self.stamp.1 > BYTES_MAX {
            return Err(format!("larger than {BYTES_MAX} bytes"));
        }
        Report::read(&self.path).map_err(|error| error.what)
    }
}

impl Heading {
    fn of(name: &str, report: &Report) -> Heading {
        let manifest = &report.manifest;
        Heading {
            name: name.to_owned(),
            scenario: report.scenario.name.clone(),
            question: report.scenario.question.clone(),
            answer: report.answer.as_ref().map(|answer| answer.sentence.clone()),
            verdict: report.verdict.word(),
            reason: report.verdict.reasons.first().cloned(),
            started_at_ms: i64::try_from(manifest.started_at).map_or(i64::MAX, |s| s.saturating_mul(1_000)),
            targets: manifest
                .targets
                .iter()
                .map(|target| target.name.clone())
                .collect(),
            commit: manifest.commit.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ottla_lab::bench::{html, sample};

    use super::*;

    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Directory {
            let path = std::env::temp_dir().join(format!("ottla-reports-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Directory(path)
        }

        fn put(&self, file: &str, text: &str) {
            fs::write(self.0.join(file), text).unwrap();
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn started(at: u64) -> Report {
        let mut report = sample::report();
        report.manifest.started_at = at;
        report
    }

    fn json(report: &Report) -> String {
        serde_json::to_string(report).unwrap()
    }

    #[test]
    fn reports_are_listed_newest_first_and_once_beside_their_pages() {
        let directory = Directory::new("list");
        directory.put("a-1.json", &json(&started(100)));
        directory.put("a-1.html", &html::render(&started(100)));
        directory.put("b-2.html", &html::render(&started(200)));
        directory.put("notes.txt", "no report");
        fs::create_dir(directory.0.join("folder.json")).unwrap();
        let listing = Reports::of(&directory.0).list().unwrap();
        let names: Vec<&str> = listing.reports.iter().map(|one| &*one.name).collect();
        assert_eq!(names, ["b-2", "a-1"]);
        assert_eq!(listing.reports[1].started_at_ms, 100_000);
        assert_eq!((listing.unreadable.len(), listing.cut), (0, 0));
    }

    #[test]
    fn files_that_cannot_be_read_are_named_with_what_is_wrong() {
        let directory = Directory::new("damaged");
        directory.put("cut.json", &json(&started(1))[..400]);
        directory.put("empty.json", "");
        let reports = Reports::of(&directory.0);
        let unreadable = reports.list().unwrap().unreadable;
        let named: Vec<(&str, &str)> = unreadable.iter().map(|(name, what)| (&**name, &**what)).collect();
        let mut named = named;
        named.sort_unstable();
        assert_eq!(
            named,
            [("cut", "ends in the middle of the report"), ("empty", "is empty")]
        );
        // A run that ends writes its report into the file that it made at its start.
        directory.put("empty.json", &json(&started(1)));
        assert_eq!(reports.list().unwrap().unreadable.len(), 1);
        let error = reports.one("cut").unwrap_err();
        assert!(error.0.contains("The report cut: ends in the middle"), "{error}");
        let missing = Reports::of(&directory.0.join("none")).list().unwrap_err();
        assert!(missing.0.contains("none cannot be read"), "{missing}");
    }

    #[test]
    fn no_name_leads_out_of_the_directory() {
        let directory = Directory::new("outside");
        fs::create_dir(directory.0.join("in")).unwrap();
        directory.put("outside.json", &json(&started(1)));
        let reports = Reports::of(&directory.0.join("in"));
        for name in ["../outside", "..", "", "/etc/passwd", "../outside.json"] {
            assert!(reports.one(name).unwrap().is_none(), "{name}");
        }
        assert!(Reports::of(&directory.0).one("outside").unwrap().is_some());
    }
}
