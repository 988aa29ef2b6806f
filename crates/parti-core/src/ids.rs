//! Names and numbers, each a type of its own, so that an epoch can never be passed for a term.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps a name that is already in canonical form.
            pub fn new(name: impl AsRef<str>) -> Self {
                Self(Arc::from(name.as_ref()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

macro_rules! number_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The number that follows this one.
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }
    };
}

name_type! {
    /// A worker's stable id, such as `worker-7`.
    WorkerId
}
name_type! {
    /// A partition's canonical id: its escaped keys, joined by dots (see [`crate::codec`]).
    PartitionId
}

number_type! {
    /// A partition's number: grows with every change of owner. The fencing token.
    Epoch
}
number_type! {
    /// The leader's number: grows with every election.
    Term
}
number_type! {
    /// What the store gave a write. Grows strictly, across deletes too: over all partition records,
    /// and over all others.
    Revision
}
number_type! {
    /// One life of a stable id: the revision of the write that claimed it, so lives are ordered.
    Incarnation
}
number_type! {
    /// The number of an assignment or plan: grows with every one that a group publishes.
    Version
}
number_type! {
    /// A message's place in its log. Grows along a partition, not necessarily by one.
    Offset
}
number_type! {
    /// Marks one write, so that its writer knows it again when its fate was open.
    Nonce
}

/// What a consumer that is elsewhere shows to have its session hosted: the hash of a secret that only
/// it has. Two sessions with one badge are one consumer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Badge(pub u128);

impl Offset {
    /// The largest that can be done. One past it, where reading goes on, is still a number that every
    /// store, file and language holds, which is a signed one of 64 bits.
    pub const LARGEST: Self = Self(i64::MAX.unsigned_abs() - 1);
}

/// Which source the offsets of a group are of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceId {
    /// One that tells no identity (0): nobody knows whether another one is the same.
    #[default]
    Untold,
    /// None: the group was made without a log, and only who consumes it knows where its messages are.
    NoLog,
    /// The one of this identity.
    Told(NonZeroU64),
}

impl From<u64> for SourceId {
    fn from(identity: u64) -> Self {
        NonZeroU64::new(identity).map_or(Self::Untold, Self::Told)
    }
}

impl SourceId {
    /// Whether offsets of one say nothing in the other, as far as anybody knows: where one of two
    /// sources tells no identity, nobody does. No source is one that there is none of.
    pub fn is_other(self, than: Self) -> bool {
        match (self, than) {
            (Self::Untold, Self::Untold | Self::Told(_)) | (Self::Told(_), Self::Untold) => false,
            (one, other) => one != other,
        }
    }
}
