//! What a store says while nothing is granted after `store advance`. PostgreSQL says the same in SQL, and a server reads the
//! time that is left out of it, whichever store it serves.

const BEFORE: &str = "after `store advance` nobody is granted anything for another ";
const AFTER: &str = " ms";

/// The reason, with how long it lasts.
pub fn because(left_ms: u64) -> String {
    format!("{BEFORE}{left_ms}{AFTER}")
}

/// How long a store that says this stays closed.
pub fn left_ms(why: &str) -> Option<u64> {
    let (_, rest) = why.split_once(BEFORE)?;
    rest.split_once(AFTER)?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_read_back_wherever_the_reason_stands() {
        assert_eq!(left_ms(&format!("the store: {}, and so on", because(86_400_000))), Some(86_400_000));
        assert_eq!(left_ms("the store is away for another 5 ms"), None);
    }
}
