//! Reports on disk: the JSON, or the page that holds it.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::report::{Report, SCHEMA};

/// The file, and what is wrong with it.
#[derive(Debug)]
pub struct ReadError {
    pub path: PathBuf,
    pub what: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}

impl std::error::Error for ReadError {}

/// Reports have some hundred KiB; a file larger than this is something else.
const BYTES_MAX: u64 = 512 << 20;

impl Report {
    /// Reads the JSON of a report, or the page that `html::render` made of it.
    ///
    /// - Errors: the file cannot be read, is cut off, is not a report, or has a schema other than
    ///   `SCHEMA`.
    pub fn read(path: &Path) -> Result<Report, ReadError> {
        let error = |what: String| ReadError {
            path: path.to_owned(),
            what,
        };
        let text = read_text(path).map_err(|cause| error(cause.to_string()))?;
        parse(&text).map_err(error)
    }
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let read = File::open(path)?.take(BYTES_MAX + 1).read_to_string(&mut text)?;
    if read as u64 > BYTES_MAX {
        return Err(io::Error::other(format!(
            "larger than {BYTES_MAX} bytes, so no report"
        )));
    }
    Ok(text)
}

fn parse(text: &str) -> Result<Report, String> {
    let json = if text.trim_start().starts_with('<') {
        let (_, rest) = text
            .split_once("id=\"report\">")
            .ok_or("a page without a report in it")?;
        rest.split_once("</script>")
            .ok_or("ends in the middle of the report")?
            .0
    } else {
        text
    };
    if json.trim().is_empty() {
        return Err(String::from("is empty"));
    }
    let value: Value = serde_json::from_str(json).map_err(|cause| match cause.is_eof() {
        true => String::from("ends in the middle of the report"),
        false => format!("is no report: {cause}"),
    })?;
    let schema = value
        .get("schema")
        .and_then(Value::as_str)
        .ok_or("is no report: it has no schema")?;
    if schema != SCHEMA {
        return Err(format!(
            "has the schema {schema:?}; this version reads {SCHEMA:?}"
        ));
    }
    serde_json::from_value(value).map_err(|cause| format!("is a damaged report: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{html, sample};

    fn json() -> String {
        serde_json::to_string(&sample::report()).unwrap()
    }

    #[test]
    fn json_and_page_are_the_same_report() {
        let from_json = parse(&json()).unwrap();
        let from_page = parse(&html::render(&sample::report())).unwrap();
        assert!(serde_json::to_value(from_json).unwrap() == serde_json::to_value(from_page).unwrap());
    }

    #[test]
    fn files_that_are_not_reports_have_distinct_errors() {
        let check = |text: &str, wanted: &str| {
            let what = parse(text).unwrap_err();
            assert!(what.contains(wanted), "{what}");
        };
        check("", "is empty");
        check(&json()[..500], "ends in the middle");
        check("hello", "is no report");
        check("{}", "no schema");
        check("[1]", "no schema");
        check("{\"schema\": 3}", "no schema");
        check(
            "{\"schema\": \"ottla.bench.report/2\"}",
            "this version reads \"ottla.bench.report/1\"",
        );
        check(
            "{\"schema\": \"ottla.bench.report/1\"}",
            "damaged report: missing field",
        );
        check("<html></html>", "a page without a report");
        check("<html><script id=\"report\">{", "ends in the middle");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Report::read(Path::new("/no/such/report.json"))
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("/no/such/report.json: "), "{error}");
    }

    #[test]
    fn nan_and_infinity_do_not_spoil_the_file() {
        let mut report = sample::report();
        let measurement = &mut report.points[0].on[0].measurements[0];
        measurement.figures.insert(String::from("batch_bytes"), f64::NAN);
        measurement.producers[0]
            .metrics
            .insert(String::from("batch-size-avg"), f64::INFINITY);
        let back = parse(&serde_json::to_string(&report).unwrap()).unwrap();
        let measurement = &back.points[0].on[0].measurements[0];
        assert!(!measurement.figures.contains_key("batch_bytes"));
        assert!(measurement.producers[0].metrics.is_empty());
    }
}
