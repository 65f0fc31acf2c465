//! Checks common to AlterConfigs and IncrementalAlterConfigs, made before the controller is asked.

use std::collections::{BTreeMap, BTreeSet};

use ottla_wire::error_code::ErrorCode;

use crate::access::granted::GrantedConfig;
use crate::refusal::Refusal;

/// Type and name of a resource, as sent by the client.
pub(super) type ResourceKey = (i8, String);

/// The resources of one request: those refused at once, and those the controller decides about.
pub(super) struct Altered<T> {
    resources: Vec<ResourceKey>,
    /// Parallel to `resources`; `Ok` means that the controller decides.
    checked: Vec<Result<(), Refusal>>,
    changes: Vec<T>,
}

impl<T> Altered<T> {
    pub(super) fn check<'a>(
        keys: impl Iterator<Item = (i8, &'a str)>,
        change: impl Fn(usize) -> Result<T, Refusal>,
    ) -> Altered<T> {
        let keys: Vec<(i8, &str)> = keys.collect();
        let mut times = BTreeMap::<(i8, &str), usize>::new();
        for key in &keys {
            *times.entry(*key).or_default() += 1;
        }
        let mut altered = Altered {
            resources: Vec::new(),
            checked: Vec::new(),
            changes: Vec::new(),
        };
        for (index, key) in keys.iter().enumerate() {
            let result = if times[key] > 1 {
                Err(Refusal::new(
                    ErrorCode::InvalidRequest,
                    "Each resource must appear at most once.",
                ))
            } else {
                change(index)
            };
            altered.resources.push((key.0, key.1.to_owned()));
            altered
                .checked
                .push(result.map(|change| altered.changes.push(change)));
        }
        altered
    }

    pub(super) fn into_parts(self) -> (Vec<ResourceKey>, Vec<Result<(), Refusal>>, Vec<T>) {
        (self.resources, self.checked, self.changes)
    }
}

/// Merges the controller's results with the refusals, in the order of the request.
pub(super) fn merge<T>(
    checked: Vec<Result<(), Refusal>>,
    decided: Result<Vec<Result<T, Refusal>>, Refusal>,
) -> Vec<Result<T, Refusal>> {
    let mut decided = decided.map(Vec::into_iter);
    let mut next = || match &mut decided {
        Ok(results) => results.next().expect("the controller answers every change"),
        Err(refusal) => Err(refusal.clone()),
    };
    checked
        .into_iter()
        .map(|result| result.and_then(|()| next()))
        .collect()
}

/// Returns the resource if its type can be configured and no key occurs twice.
pub(super) fn alterable<'a>(
    granted: Option<GrantedConfig>,
    resource_type: i8,
    names: impl Iterator<Item = &'a str>,
) -> Result<GrantedConfig, Refusal> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Refusal::new(
                ErrorCode::InvalidRequest,
                "Error due to duplicate config keys",
            ));
        }
    }
    granted.ok_or_else(|| {
        Refusal::new(
            ErrorCode::InvalidRequest,
            format!("Unknown resource type {resource_type}"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigResource;

    #[test]
    fn results_keep_the_order_of_the_request() {
        let keys = [(2, "a"), (2, "twice"), (2, "b"), (2, "twice"), (4, "a")];
        let altered = Altered::check(keys.into_iter(), |index| match index {
            2 => Err(Refusal::new(ErrorCode::InvalidConfig, "b")),
            index => Ok(index),
        });
        let (resources, checked, changes) = altered.into_parts();
        assert_eq!(resources.len(), 5);
        assert_eq!(changes, [0, 4]);
        let decided = vec![Ok(()), Err(Refusal::plain(ErrorCode::UnknownTopicOrPartition))];
        let codes: Vec<_> = merge(checked, Ok(decided))
            .into_iter()
            .map(|result| result.err().map(|refusal| refusal.code))
            .collect();
        let invalid = Some(ErrorCode::InvalidRequest);
        assert_eq!(
            codes,
            [
                None,
                invalid,
                Some(ErrorCode::InvalidConfig),
                invalid,
                Some(ErrorCode::UnknownTopicOrPartition)
            ]
        );
    }

    #[test]
    fn a_repeated_key_and_an_unknown_type_are_refused() {
        let granted = || Some(GrantedConfig::of(ConfigResource::topic("t")));
        assert!(alterable(granted(), 2, ["a", "b"].into_iter()).is_ok());
        assert_eq!(
            alterable(granted(), 2, ["a", "a"].into_iter()).unwrap_err().code,
            ErrorCode::InvalidRequest
        );
        assert_eq!(
            alterable(None, 8, [].into_iter()).unwrap_err().code,
            ErrorCode::InvalidRequest
        );
    }
}
