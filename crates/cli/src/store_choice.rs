//! Which store: `--store`, else `FENCEHOLD_STORE`, else a directory of the user's own.

use std::ffi::OsString;
use std::path::PathBuf;
use std::{env, fmt};

use fencehold_contract::{StoreError, StoreUrl};

use crate::exit_code::ExitStatus;
use crate::failure::Failure;

/// The variable that names a store.
pub(crate) const STORE_VARIABLE: &str = "FENCEHOLD_STORE";

/// A store, and by what it was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreChoice {
    pub(crate) url: StoreUrl,
    pub(crate) chosen: ChosenBy,
}

/// By what the store was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChosenBy {
    Flag,
    Variable,
    #[cfg(feature = "server")]
    Settings,
    Default,
}

impl fmt::Display for ChosenBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ChosenBy::Flag => "--store",
            ChosenBy::Variable => STORE_VARIABLE,
            #[cfg(feature = "server")]
            ChosenBy::Settings => "the server's settings",
            ChosenBy::Default => "the default",
        })
    }
}

impl StoreChoice {
    /// Chooses by the flag and the environment of this process.
    pub(crate) fn choose(flag: Option<&str>) -> Result<Self, Failure> {
        StoreChoice::choose_from(flag, |name| env::var_os(name))
    }

    /// The store that a server's settings name.
    #[cfg(feature = "server")]
    pub(crate) fn named(url: &str) -> Result<Self, Failure> {
        Ok(StoreChoice { url: url.parse()?, chosen: ChosenBy::Settings })
    }

    fn choose_from(flag: Option<&str>, variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, Failure> {
        if let Some(text) = flag {
            return Ok(StoreChoice { url: text.parse()?, chosen: ChosenBy::Flag });
        }
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        if let Some(text) = set(STORE_VARIABLE) {
            let bad = |problem: String| Failure::usage(format!("{STORE_VARIABLE}: {problem}"));
            let text = text.into_string().map_err(|_| bad("the store URL is not UTF-8".to_owned()))?;
            let url = text.parse().map_err(|error: fencehold_core::BadInput| bad(error.to_string()))?;
            return Ok(StoreChoice { url, chosen: ChosenBy::Variable });
        }
        let Some(state) = state_directory_from(variable) else {
            return Err(Failure::usage("no store was named, and without HOME there is no default")
                .with_next(format!("Name one with --store file:DIR or {STORE_VARIABLE}.")));
        };
        // Not by way of a text: a directory may have any name.
        Ok(StoreChoice { url: StoreUrl::file(state), chosen: ChosenBy::Default })
    }

    /// Whether the store is created where there is none: the default one, one whose URL says so, and one that a verb that
    /// changes something is to create. One that was only named is not: its name may be mistyped, and another store excludes nothing.
    fn creates(&self, create: bool) -> bool {
        let in_url = matches!(&self.url, StoreUrl::File(url) if url.create);
        create || in_url || self.chosen == ChosenBy::Default
    }

    /// The store for a verb that changes something, with or without `--create`.
    pub(crate) fn for_acting(mut self, create: bool) -> Result<Self, Failure> {
        if self.creates(create) {
            self.prepare()?;
            self.url = self.url.creating();
        }
        Ok(self)
    }

    /// The store for a verb that only looks: it is never created.
    pub(crate) fn for_looking(mut self) -> Self {
        self.url = self.url.existing();
        self
    }

    /// Whether an error means only that the store was not created yet, and that a verb that changes something would create it.
    pub(crate) fn is_yet_to_come(&self, error: &StoreError) -> bool {
        matches!(error, StoreError::NoStore { .. }) && self.creates(false)
    }

    /// The user's state directory may not exist yet, on a new account.
    fn prepare(&self) -> Result<(), Failure> {
        let StoreUrl::File(url) = &self.url else { return Ok(()) };
        let (ChosenBy::Default, Some(parent)) = (self.chosen, url.directory.parent()) else { return Ok(()) };
        std::fs::create_dir_all(parent).map_err(|error| {
            Failure::new(ExitStatus::Unavailable, format!("{} cannot be created: {error}", parent.display()))
                .with_next(format!("Name another place with --store file:DIR or {STORE_VARIABLE}."))
        })
    }
}

/// The user's state directory, for what no option names a place for.
#[cfg(feature = "server")]
pub(crate) fn state_directory() -> Option<PathBuf> {
    state_directory_from(|name| env::var_os(name))
}

fn state_directory_from(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    // The XDG rules: a relative path there is invalid, and is to be ignored.
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    state.map(|state| state.join("fencehold"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(flag: Option<&str>, variables: &[(&str, &str)]) -> Result<(String, ChosenBy), Failure> {
        let variable = |name: &str| {
            let named = variables.iter().find(|(named, _)| *named == name);
            named.map(|(_, value)| OsString::from(value))
        };
        StoreChoice::choose_from(flag, variable).map(|place| (place.url.to_string(), place.chosen))
    }

    #[test]
    fn the_flag_comes_before_the_variable_and_that_before_the_default() {
        let all = [("FENCEHOLD_STORE", "file:/v"), ("XDG_STATE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(choose(Some("memory:"), &all), Ok(("memory:".to_owned(), ChosenBy::Flag)));
        assert_eq!(choose(None, &all), Ok(("file:/v".to_owned(), ChosenBy::Variable)));
        assert_eq!(choose(None, &all[1..]), Ok(("file:/x/fencehold".to_owned(), ChosenBy::Default)));
        let home = "file:/h/.local/state/fencehold".to_owned();
        assert_eq!(choose(None, &all[2..]), Ok((home, ChosenBy::Default)));
    }

    #[test]
    fn an_empty_or_relative_variable_is_as_good_as_none() {
        let odd = [("FENCEHOLD_STORE", ""), ("XDG_STATE_HOME", "state"), ("HOME", "/h")];
        assert_eq!(choose(None, &odd), Ok(("file:/h/.local/state/fencehold".to_owned(), ChosenBy::Default)));
    }

    #[test]
    fn without_a_home_the_error_says_what_to_name() {
        let Err(Failure::Said { exit, what, next, .. }) = choose(None, &[("HOME", "")]) else {
            panic!("chosen")
        };
        assert_eq!(exit, ExitStatus::Usage);
        assert!(what.contains("HOME") && next.is_some_and(|next| next.contains("--store file:DIR")));
    }

    #[test]
    fn a_bad_url_names_where_it_came_from() {
        let Err(Failure::Said { exit, what, .. }) = choose(None, &[("FENCEHOLD_STORE", "x")]) else {
            panic!("chosen")
        };
        assert_eq!(exit, ExitStatus::Usage);
        assert!(what.starts_with("FENCEHOLD_STORE: store URL \"x\" has no scheme"), "{what}");
    }
}
