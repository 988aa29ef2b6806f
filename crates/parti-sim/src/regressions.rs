//! Seeds that once failed, for good.
//!
//! One per line: the seed, then perhaps the faults as JSON (as `run` prints them) in place of the
//! seed's own scenario, then perhaps `#` and what it was.

use crate::scenario::Timed;

/// A seed that once failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regression {
    /// The seed.
    pub seed: u64,
    /// The faults, if not the seed's own.
    pub faults: Option<Vec<Timed>>,
    /// What it was.
    pub comment: String,
}

/// Reads the list.
pub fn parse(text: &str) -> Result<Vec<Regression>, String> {
    let lines = text
        .lines()
        .enumerate()
        .map(|(number, line)| (number + 1, line.trim()));
    lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(number, line)| parse_line(line).map_err(|why| format!("line {number}: {why}")))
        .collect()
}

fn parse_line(line: &str) -> Result<Regression, String> {
    let (line, comment) = match line.split_once('#') {
        Some((line, comment)) => (line.trim(), comment.trim()),
        None => (line, ""),
    };
    let (seed, faults) = match line.split_once(char::is_whitespace) {
        Some((seed, faults)) => (seed, Some(faults.trim())),
        None => (line, None),
    };
    let faults = faults
        .map(serde_json::from_str)
        .transpose()
        .map_err(|why| why.to_string())?;
    let seed = seed
        .parse()
        .map_err(|_| format!("{seed:?} is not a seed"))?;
    Ok(Regression {
        seed,
        faults,
        comment: comment.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Fault;

    #[test]
    fn reads_seeds_with_and_without_faults() {
        let text = "# a comment\n\n12\n13 # lost a message\n\
                    14 [{\"at\":5,\"fault\":{\"outage\":{\"length\":7}}}] # went early\n";
        let read = parse(text).expect("it is well-formed");
        assert_eq!(
            read.iter().map(|known| known.seed).collect::<Vec<_>>(),
            [12, 13, 14]
        );
        assert_eq!(read[1].comment, "lost a message");
        let faults = vec![Timed {
            at: 5,
            fault: Fault::Outage { length: 7 },
        }];
        assert_eq!(read[2].faults, Some(faults));
    }

    #[test]
    fn says_which_line_is_wrong() {
        assert!(parse("1\nx\n").is_err_and(|why| why.starts_with("line 2")));
    }
}
