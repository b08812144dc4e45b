//! `fencehold config …`: the settings that a server would have.

use serde::Serialize;

use crate::context::Context;
use crate::server_files::{ServerFileArgs, access_file, bad_setting};
use crate::show::{Cell, Colour, Table};
use crate::store_choice::ChosenBy;
use crate::verb::{VerbResult, verbs};

verbs! {
    /// Look at a server's settings
    #[command(before_help = "\
fencehold config check
fencehold config check --config /etc/fencehold/server.toml")]
    Verb:
    Check = CheckArgs,
}

/// Check a server's settings, and show where each comes from
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold config check --config /etc/fencehold/server.toml
FENCEHOLD_SERVE_LISTEN=0.0.0.0:7117 fencehold config check -o json")]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    server_files: ServerFileArgs,
}

#[derive(Serialize)]
struct ConfigReport {
    settings: Vec<Setting>,
}

#[derive(Serialize)]
struct Setting {
    name: &'static str,
    value: String,
    /// Missing: it is the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
}

impl CheckArgs {
    #[expect(clippy::unused_async, reason = "every verb is called alike")]
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        context.output.refuse_env()?;
        let told = self.server_files.told(Vec::new())?;
        let settings = told.settings().map_err(bad_setting)?;
        let place = context.place_or(settings.store.as_deref())?;
        let access = access_file(&settings, &place)?;
        crate::logging::check_server(&settings.log)?;
        settings.listen.resolve().map_err(bad_setting)?;
        // Nothing is sent, so no seed is needed that would keep it apart from others.
        settings.options([0; 16]).map_err(bad_setting)?;
        let mut lines: Vec<Setting> = told
            .lines()
            .map(|(name, value, origin)| Setting { name, value, source: origin.map(ToString::to_string) })
            .collect();
        // What they come to in the end.
        for line in &mut lines {
            match line.name {
                "store" => {
                    line.value = place.url.to_string();
                    if matches!(place.chosen, ChosenBy::Flag | ChosenBy::Variable) {
                        line.source = Some(place.chosen.to_string());
                    }
                }
                "access_file" => line.value = access.display().to_string(),
                _ => {}
            }
        }
        let report = ConfigReport { settings: lines };
        context.output.list(&report, &report.settings, "", |settings| {
            Table::of(["SETTING", "VALUE", "SOURCE"], settings, |setting| {
                let default = || Cell::from("default").in_colour(Colour::Faint);
                let source = setting.source.as_ref().map_or_else(default, Cell::from);
                [setting.name.into(), setting.value.as_str().into(), source]
            })
        })
    }
}
