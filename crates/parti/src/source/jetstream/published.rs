//! What a stream answers to a message that is published.

use serde::Deserialize;

use crate::nats::link::{Trouble, answer, code};
use crate::source::Offset;

/// Where the stream has it. `None`: it does not say that it has it; sent again under the same id, it
/// will say so, or store it.
///
/// A leader of a cluster knows the id of a message as soon as it begins to store it. If it loses its
/// office in the middle, the message may be gone, while the id is still known. A message that is sent
/// again is then answered by servers up to 2.10 as if it were stored, though at no place, and by later
/// ones with an error of its own, until they forget the id.
pub(super) fn place(payload: &[u8]) -> Result<Option<Offset>, Trouble> {
    #[derive(Deserialize)]
    struct Stored {
        seq: u64,
    }
    match answer::<Stored>(payload) {
        Ok(Stored { seq: 0 }) => Ok(None),
        Ok(Stored { seq }) => Ok(Some(Offset(seq))),
        Err(Trouble::Refusal(refusal))
            if [code::ID_IN_PROCESS, code::TOO_MANY_REQUESTS].contains(&refusal.err_code) =>
        {
            Ok(None)
        }
        Err(trouble) => Err(trouble),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_place_is_a_proof() {
        let stored = br#"{"stream":"S","seq":7}"#;
        assert!(matches!(place(stored), Ok(Some(Offset(7)))));
        let again = br#"{"stream":"S","seq":7,"duplicate":true}"#;
        assert!(matches!(place(again), Ok(Some(Offset(7)))));
        for unproven in [
            r#"{"stream":"S","seq":0,"duplicate":true}"#,
            r#"{"error":{"code":409,"err_code":10158,"description":"duplicate message id is in process"},"stream":"S","seq":0}"#,
            r#"{"error":{"code":429,"err_code":10167,"description":"too many requests"},"stream":"S","seq":0}"#,
        ] {
            assert!(matches!(place(unproven.as_bytes()), Ok(None)), "{unproven}");
        }
        let full = br#"{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"S","seq":0}"#;
        assert!(matches!(place(full), Err(Trouble::Refusal(_))));
    }
}
