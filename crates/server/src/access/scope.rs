//! What a token may be used for: a set of scopes.

use std::fmt;
use std::str::FromStr;

use fencehold_contract::http::Scope;

/// A set of scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes(u16);

impl Scopes {
    /// Every right there is.
    pub fn all() -> Self {
        Scope::ALL.into_iter().collect()
    }

    /// Whether these scopes allow what needs `scope`.
    pub fn allow(self, scope: Scope) -> bool {
        self.0 & (bit(scope) | bit(Scope::Admin)) != 0
    }

    /// Whether there is none at all.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The scopes, in their order.
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.0 & bit(*scope) != 0)
    }
}

fn bit(scope: Scope) -> u16 {
    1 << scope as u8
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Scopes(scopes.into_iter().fold(0, |bits, scope| bits | bit(scope)))
    }
}

/// As they are kept and shown: names with commas between them.
impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Scope::name).collect();
        f.pad(&names.join(","))
    }
}

impl FromStr for Scopes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').map(|name| name.trim().parse()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_allows_itself_and_nothing_else_but_admin_allows_all() {
        for held in Scope::ALL {
            for asked in Scope::ALL {
                let scopes: Scopes = [held].into_iter().collect();
                assert_eq!(scopes.allow(asked), held == asked || held == Scope::Admin, "{held} {asked}");
            }
        }
        assert!(Scope::ALL.iter().all(|scope| !Scopes::default().allow(*scope)));
    }

    #[test]
    fn scopes_survive_being_written_down() {
        let some: Scopes = [Scope::JobWork, Scope::LeaseRead].into_iter().collect();
        assert_eq!(some.to_string(), "lease:read,job:work");
        assert_eq!(some.to_string().parse(), Ok(some));
        assert!("lease:read,lease:steal".parse::<Scopes>().unwrap_err().contains("job:admin"));
    }
}
