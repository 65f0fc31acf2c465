//! The ranges within which a group of KIP-848 may have its own times.

use super::{ConfigError, ConfigValues};

/// The ranges of `group.consumer.min.*` and `group.consumer.max.*`. Defaults are those of Apache
/// Kafka 4.3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerLimits {
    pub session_timeout_ms: Limits,
    pub heartbeat_interval_ms: Limits,
    pub assignment_interval_ms: Limits,
}

/// The range of one setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The key without `consumer.`.
    key: &'static str,
    min: i32,
    max: i32,
}

impl Default for ConsumerLimits {
    fn default() -> Self {
        let limits = |key, min, max| Limits { key, min, max };
        ConsumerLimits {
            session_timeout_ms: limits("session.timeout.ms", 45_000, 60_000),
            heartbeat_interval_ms: limits("heartbeat.interval.ms", 5_000, 15_000),
            assignment_interval_ms: limits("assignment.interval.ms", 0, 15_000),
        }
    }
}

impl ConsumerLimits {
    /// Reads the ranges of a broker.
    ///
    /// - `read`: the value of a broker's key.
    /// - Errors: a range is empty, or the broker's own value, which groups without one have, is
    ///   outside.
    pub fn read(read: impl Fn(&str) -> Result<i32, ConfigError>) -> Result<ConsumerLimits, ConfigError> {
        let mut all = ConsumerLimits::default();
        for limits in all.each_mut() {
            let key = limits.key;
            limits.min = read(&format!("group.consumer.min.{key}"))?;
            let max_key = format!("group.consumer.max.{key}");
            limits.max = read(&max_key)?;
            if limits.max < limits.min {
                let problem = format!("must be at least {}, the minimum", limits.min);
                return Err(ConfigError::new(&max_key, &limits.max.to_string(), &problem));
            }
            let own_key = format!("group.consumer.{key}");
            let own = read(&own_key)?;
            if let Some(problem) = limits.problem(own) {
                return Err(ConfigError::new(&own_key, &own.to_string(), &problem));
            }
        }
        Ok(all)
    }

    /// Returns why a group cannot have these settings of its own; `None`: it can.
    pub fn values_error(&self, values: &ConfigValues) -> Option<String> {
        [
            self.session_timeout_ms,
            self.heartbeat_interval_ms,
            self.assignment_interval_ms,
        ]
        .into_iter()
        .find_map(|limits| {
            let name = format!("consumer.{}", limits.key);
            let value = values.get(&*name)?.trim().parse().ok()?;
            let problem = limits.problem(value)?;
            Some(format!("{name}={value}: {problem}"))
        })
    }

    fn each_mut(&mut self) -> [&mut Limits; 3] {
        [
            &mut self.session_timeout_ms,
            &mut self.heartbeat_interval_ms,
            &mut self.assignment_interval_ms,
        ]
    }
}

impl Limits {
    /// A group may have been given its value under other limits.
    pub fn clamp(self, value: i32) -> i32 {
        value.clamp(self.min, self.max)
    }

    fn problem(self, value: i32) -> Option<String> {
        let Limits { key, min, max } = self;
        let is_within = (min..=max).contains(&value);
        (!is_within).then(|| {
            format!("must be from {min} to {max} (group.consumer.min.{key}, group.consumer.max.{key})")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &[(&str, i32)]) -> Result<ConsumerLimits, ConfigError> {
        ConsumerLimits::read(|key| {
            let given = given.iter().find(|(name, _)| *name == key);
            let key = ottla_wire::config_keys::broker_key(key).expect("it is in the table");
            Ok(given.map_or_else(|| key.default.unwrap().parse().unwrap(), |(_, value)| *value))
        })
    }

    #[test]
    fn the_defaults_are_those_of_the_table() {
        assert_eq!(read(&[]).unwrap(), ConsumerLimits::default());
    }

    #[test]
    fn a_brokers_own_value_is_within_its_limits() {
        for (key, value) in [
            ("group.consumer.session.timeout.ms", 44_999),
            ("group.consumer.heartbeat.interval.ms", 15_001),
            ("group.consumer.max.assignment.interval.ms", -1),
            ("group.consumer.min.session.timeout.ms", 60_001),
        ] {
            assert!(read(&[(key, value)]).is_err(), "{key}");
        }
        let lower = [
            ("group.consumer.min.session.timeout.ms", 10_000),
            ("group.consumer.session.timeout.ms", 10_000),
        ];
        assert_eq!(read(&lower).unwrap().session_timeout_ms.clamp(5), 10_000);
    }

    #[test]
    fn a_group_is_not_given_a_value_outside_and_one_that_it_has_is_clamped() {
        let limits = ConsumerLimits::default();
        let values = |value: &str| ConfigValues::from([("consumer.session.timeout.ms".into(), value.into())]);
        assert_eq!(limits.values_error(&values("45000")), None);
        let problem = limits.values_error(&values("60001")).unwrap();
        assert!(problem.contains("from 45000 to 60000"), "{problem}");
        assert_eq!(limits.session_timeout_ms.clamp(70_000), 60_000);
        assert_eq!(limits.heartbeat_interval_ms.clamp(100), 5_000);
    }
}
