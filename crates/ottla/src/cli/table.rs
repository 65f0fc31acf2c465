//! Tables: columns as wide as their widest cell, two spaces apart.

use super::doctor::text::letters;

/// Returns a line for each row. All lines have the same width, trailing spaces included.
///
/// - `text_columns`: this many columns from the left are left-aligned; the others are figures.
pub fn align<const COLUMNS: usize>(rows: &[[String; COLUMNS]], text_columns: usize) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| letters(&row[column])).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match column < text_columns {
            true => format!("{cell:width$}"),
            false => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<String>>().join("  ")
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_aligned_to_the_left_and_figures_to_the_right() {
        let rows = [["NAME", "RATE"], ["ünï", "1"], ["longer", "28,445"]].map(|row| row.map(String::from));
        assert_eq!(
            align(&rows, 1),
            ["NAME      RATE", "ünï          1", "longer  28,445"]
        );
    }
}
