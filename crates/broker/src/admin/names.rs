//! `/metrics?names=`: the exporters by whose names values are given beside those that are always
//! there.

/// The exporters whose names can be asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Confluent's rules for the JMX exporter (jmx-monitoring-stacks).
    pub confluent: bool,
    /// Strimzi's metrics reporter, from Strimzi 0.48 on.
    pub reporter: bool,
    /// kminion.
    pub kminion: bool,
}

impl Names {
    /// Reads a query: `names=confluent,kminion`. Other keys are ignored.
    ///
    /// - Errors: a name that is not known.
    pub fn of_query(query: Option<&str>) -> Result<Names, String> {
        let mut names = Names::default();
        let parts = query.unwrap_or_default().split('&');
        let asked = parts.filter_map(|part| part.strip_prefix("names="));
        for name in asked.flat_map(|list| list.split(',')) {
            match name {
                "" => {}
                "confluent" => names.confluent = true,
                "reporter" => names.reporter = true,
                "kminion" => names.kminion = true,
                _ => return Err("unknown names: there are confluent, reporter and kminion\n".to_owned()),
            }
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_a_list_and_unknown_ones_are_refused() {
        let read = |query| Names::of_query(Some(query)).unwrap();
        assert_eq!(Names::of_query(None), Ok(Names::default()));
        assert_eq!(read("x=1&names="), Names::default());
        let both = read("names=confluent,kminion");
        assert!(both.confluent && both.kminion && !both.reporter);
        assert!(read("names=confluent&names=reporter").reporter);
        assert!(Names::of_query(Some("names=jmx")).is_err());
    }
}
