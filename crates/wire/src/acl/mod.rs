//! The codes of an ACL's parts (KIP-11, KIP-290), as in requests and in the metadata log.

pub mod command;

use crate::error_code::ErrorCode;

macro_rules! codes {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $code:literal $spelt:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(i8)]
        pub enum $name {
            $($variant = $code,)*
        }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// - Returns: `None` for a code that no stored ACL has.
            pub fn from_code(code: i8) -> Option<$name> {
                match code {
                    $($code => Some($name::$variant),)*
                    _ => None,
                }
            }

            /// The one with this name; upper and lower case, `_` and `-` do not matter.
            pub fn named(name: &str) -> Option<$name> {
                let plain = |name: &str| name.replace(['_', '-'], "").to_ascii_lowercase();
                let wanted = plain(name);
                $name::ALL.iter().copied().find(|one| plain(one.name()) == wanted)
            }

            pub fn code(self) -> i8 {
                self as i8
            }

            /// The name in Kafka's tools and in log lines.
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$variant => $spelt,)*
                }
            }
        }
    };
}

codes! {
    ResourceType {
        Topic = 2 "Topic",
        Group = 3 "Group",
        Cluster = 4 "Cluster",
        TransactionalId = 5 "TransactionalId",
        DelegationToken = 6 "DelegationToken",
        User = 7 "User",
    }
}

codes! {
    PatternType {
        Literal = 3 "Literal",
        Prefixed = 4 "Prefixed",
    }
}

codes! {
    Operation {
        All = 2 "All",
        Read = 3 "Read",
        Write = 4 "Write",
        Create = 5 "Create",
        Delete = 6 "Delete",
        Alter = 7 "Alter",
        Describe = 8 "Describe",
        ClusterAction = 9 "ClusterAction",
        DescribeConfigs = 10 "DescribeConfigs",
        AlterConfigs = 11 "AlterConfigs",
        IdempotentWrite = 12 "IdempotentWrite",
        CreateTokens = 13 "CreateTokens",
        DescribeTokens = 14 "DescribeTokens",
        TwoPhaseCommit = 15 "TwoPhaseCommit",
    }
}

codes! {
    Permission {
        Deny = 2 "Deny",
        Allow = 3 "Allow",
    }
}

/// In a filter: the code that leaves a part open.
pub const ANY: i8 = 1;

/// The name of the one resource of type `Cluster`.
pub const CLUSTER_NAME: &str = "kafka-cluster";
/// As a literal resource name or as a host: all of them.
pub const WILDCARD: &str = "*";
/// Every principal.
pub const WILDCARD_PRINCIPAL: &str = "User:*";

impl ResourceType {
    /// The operations that ACLs of such a resource may be about, as Kafka's tools take them.
    pub fn operations(self) -> &'static [Operation] {
        use Operation::*;
        match self {
            ResourceType::Topic => &[
                Read,
                Write,
                Create,
                Delete,
                Alter,
                Describe,
                DescribeConfigs,
                AlterConfigs,
            ],
            ResourceType::Group => &[Read, Delete, Describe, DescribeConfigs, AlterConfigs],
            ResourceType::Cluster => &[
                Create,
                Alter,
                Describe,
                ClusterAction,
                DescribeConfigs,
                AlterConfigs,
                IdempotentWrite,
            ],
            ResourceType::TransactionalId => &[Write, Describe, TwoPhaseCommit],
            ResourceType::DelegationToken => &[Describe],
            ResourceType::User => &[CreateTokens, DescribeTokens],
        }
    }

    /// The error of a request that may not use a resource of this type.
    pub fn denial(self) -> ErrorCode {
        match self {
            ResourceType::Topic => ErrorCode::TopicAuthorizationFailed,
            ResourceType::Group => ErrorCode::GroupAuthorizationFailed,
            ResourceType::TransactionalId => ErrorCode::TransactionalIdAuthorizationFailed,
            ResourceType::DelegationToken => ErrorCode::DelegationTokenAuthorizationFailed,
            ResourceType::Cluster | ResourceType::User => ErrorCode::ClusterAuthorizationFailed,
        }
    }
}

impl Operation {
    /// Whether a permission for `self` also permits `wanted`. A denial denies nothing but itself:
    /// without READ, DESCRIBE may still be allowed.
    pub fn implies(self, wanted: Operation) -> bool {
        use Operation::{Alter, AlterConfigs, Delete, Describe, DescribeConfigs, Read, Write};
        match wanted {
            Describe => matches!(self, Describe | Read | Write | Delete | Alter),
            DescribeConfigs => matches!(self, DescribeConfigs | AlterConfigs),
            _ => self == wanted,
        }
    }
}
