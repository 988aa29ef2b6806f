//! How single fields look in JSON where that differs from the types in memory.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Begun, LeaderRecord, PartitionRecord};
use crate::ids::{Badge, Epoch, Incarnation, Nonce, Offset, PartitionId, SourceId, Term, WorkerId};

/// A 64-bit number as sixteen hex digits.
pub(super) mod hex {
    use super::*;

    pub fn serialize<S: Serializer>(number: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{number:016x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        read(&text).ok_or_else(|| serde::de::Error::custom("expected sixteen hex digits"))
    }

    /// One spelling only; `from_str_radix` alone would let signs and capitals through.
    pub fn read(text: &str) -> Option<u64> {
        let number = u64::from_str_radix(text, 16).ok()?;
        (format!("{number:016x}") == text).then_some(number)
    }
}

/// A source's identity as sixteen hex digits, zeros where it tells none; and a word where there is
/// no source, which no identity can be.
pub(super) mod source {
    use super::*;

    const NO_LOG: &str = "none";

    pub fn serialize<S: Serializer>(source: &SourceId, to: S) -> Result<S::Ok, S::Error> {
        match source {
            SourceId::Untold => hex::serialize(&0, to),
            SourceId::NoLog => to.serialize_str(NO_LOG),
            SourceId::Told(identity) => hex::serialize(&identity.get(), to),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<SourceId, D::Error> {
        let text = String::deserialize(from)?;
        if text == NO_LOG {
            return Ok(SourceId::NoLog);
        }
        let read = hex::read(&text).map(SourceId::from);
        read.ok_or_else(|| serde::de::Error::custom("expected sixteen hex digits, or none"))
    }
}

/// A badge as thirty-two hex digits.
pub(super) mod badge {
    use super::*;

    pub fn serialize<S: Serializer>(badge: &Option<Badge>, to: S) -> Result<S::Ok, S::Error> {
        match badge {
            Some(Badge(number)) => to.collect_str(&format_args!("{number:032x}")),
            None => to.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Badge>, D::Error> {
        let Some(text) = Option::<String>::deserialize(from)? else {
            return Ok(None);
        };
        u128::from_str_radix(&text, 16)
            .ok()
            .filter(|number| format!("{number:032x}") == text)
            .map(|number| Some(Badge(number)))
            .ok_or_else(|| serde::de::Error::custom("expected thirty-two hex digits"))
    }
}

/// A nonce as sixteen hex digits.
pub(super) mod hex_nonce {
    use super::*;

    pub fn serialize<S: Serializer>(nonce: &Nonce, to: S) -> Result<S::Ok, S::Error> {
        hex::serialize(&nonce.0, to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Nonce, D::Error> {
        hex::deserialize(from).map(Nonce)
    }
}

/// Pairs as objects with named fields.
macro_rules! pairs {
    ($(#[$doc:meta])* $module:ident: ($first:ident: $First:ty, $second:ident: $Second:ty)) => {
        $(#[$doc])*
        pub(super) mod $module {
            use super::*;

            #[derive(Serialize)]
            struct Written<'a> {
                $first: &'a $First,
                $second: &'a $Second,
            }

            #[derive(Deserialize)]
            struct Read {
                $first: $First,
                $second: $Second,
            }

            pub fn serialize<S: Serializer>(
                pairs: &[($First, $Second)],
                to: S,
            ) -> Result<S::Ok, S::Error> {
                to.collect_seq(pairs.iter().map(|($first, $second)| Written { $first, $second }))
            }

            pub fn deserialize<'de, D: Deserializer<'de>>(
                from: D,
            ) -> Result<Vec<($First, $Second)>, D::Error> {
                let read = Vec::<Read>::deserialize(from)?;
                Ok(read.into_iter().map(|pair| (pair.$first, pair.$second)).collect())
            }
        }
    };
}

pairs! {
    /// What to prepare, with its present owner.
    prepare: (partition: PartitionId, owner: WorkerId)
}
pairs! {
    /// What nobody serves, and why.
    unserved: (partition: PartitionId, why: String)
}

/// A field that may be null but not missing: a record that lost its owner field must not read as
/// one that nobody owns.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    Option::deserialize(from)
}

fn life(
    worker: Option<WorkerId>,
    incarnation: Option<Incarnation>,
) -> Result<Option<(WorkerId, Incarnation)>, String> {
    match (worker, incarnation) {
        (Some(worker), Some(incarnation)) => Ok(Some((worker, incarnation))),
        (None, None) => Ok(None),
        _ => Err("a worker and its incarnation must be given together, or both be null".into()),
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct Leader {
    #[serde(deserialize_with = "present")]
    worker: Option<WorkerId>,
    #[serde(deserialize_with = "present")]
    incarnation: Option<Incarnation>,
    term: Term,
    beat: u64,
    #[serde(with = "hex_nonce")]
    nonce: Nonce,
}

impl From<LeaderRecord> for Leader {
    fn from(record: LeaderRecord) -> Self {
        let (worker, incarnation) = record.holder.unzip();
        Self {
            worker,
            incarnation,
            term: record.term,
            beat: record.beat,
            nonce: record.nonce,
        }
    }
}

impl TryFrom<Leader> for LeaderRecord {
    type Error = String;
    fn try_from(wire: Leader) -> Result<Self, String> {
        Ok(Self {
            holder: life(wire.worker, wire.incarnation)?,
            term: wire.term,
            beat: wire.beat,
            nonce: wire.nonce,
        })
    }
}

#[derive(Serialize, Deserialize)]
pub(super) struct Partition {
    epoch: Epoch,
    #[serde(deserialize_with = "present")]
    owner: Option<WorkerId>,
    #[serde(deserialize_with = "present")]
    incarnation: Option<Incarnation>,
    start: Offset,
    #[serde(deserialize_with = "present")]
    offset: Option<Offset>,
    /// For people: where reading starts. Checked when read, so that an edit by hand that changed
    /// only one of the two is noticed.
    next_offset: Option<Offset>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    done_above: Vec<Offset>,
    #[serde(deserialize_with = "present")]
    begun: Option<Begun>,
    #[serde(with = "hex_nonce")]
    nonce: Nonce,
    claimed_at: u64,
    updated_at: u64,
}

impl From<PartitionRecord> for Partition {
    fn from(record: PartitionRecord) -> Self {
        // Past the last number there is no next one; such a record cannot be read again either.
        let full = record.offset == Some(Offset(u64::MAX));
        let next_offset = (!full).then(|| record.next_offset());
        let (owner, incarnation) = record.owner.unzip();
        Self {
            epoch: record.epoch,
            owner,
            incarnation,
            start: record.start,
            offset: record.offset,
            next_offset,
            done_above: record.done_above,
            begun: record.begun,
            nonce: record.nonce,
            claimed_at: record.claimed_at,
            updated_at: record.updated_at,
        }
    }
}

impl TryFrom<Partition> for PartitionRecord {
    type Error = String;
    fn try_from(wire: Partition) -> Result<Self, String> {
        let record = Self {
            epoch: wire.epoch,
            owner: life(wire.owner, wire.incarnation)?,
            start: wire.start,
            offset: wire.offset,
            done_above: wire.done_above,
            begun: wire.begun,
            nonce: wire.nonce,
            claimed_at: wire.claimed_at,
            updated_at: wire.updated_at,
        };
        // Limits first: `next_offset` of the largest number would overflow.
        super::format::Body::check(&record)?;
        match wire.next_offset {
            Some(next) if next != record.next_offset() => Err(format!(
                "next_offset is {next} where offset makes it {}; set both or only offset",
                record.next_offset()
            )),
            _ => Ok(record),
        }
    }
}
