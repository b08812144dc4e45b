//! `fencehold config check`: whether a server could be started with these settings, and where each comes from.

use serde::Serialize;

use crate::context::Context;
use crate::exit_code::ExitStatus;
use crate::failure::Failure;
use crate::server_files::{ServerFileArgs, access_file, settings};
use crate::show::{Cell, Colour, Table};
use crate::store_choice::ChosenBy;
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold config check --config /etc/fencehold/server.toml
  FENCEHOLD_SERVE_LISTEN=0.0.0.0:7117 fencehold config check -o json
";

/// Check a server's settings, and show where each comes from
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
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

impl Args {
    #[expect(clippy::unused_async, reason = "every verb is called alike")]
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        context.output.refuse_env()?;
        let told = self.server_files.told(Vec::new())?;
        let settings = settings(&told)?;
        let place = context.place_or(settings.store.as_deref())?;
        let access = access_file(&settings, &place)?;
        crate::logging::check_server(&settings.log)?;
        let wrong =
            |error: fencehold_server::config::ConfigError| Failure::new(ExitStatus::Usage, error.to_string());
        settings.listen.resolve().map_err(wrong)?;
        // Nothing is sent, so no seed is needed that would keep it apart from others.
        settings
            .options([0; 16])
            .map_err(|error| Failure::new(ExitStatus::Usage, error.to_string()))?;
        let mut lines: Vec<Setting> = told
            .lines()
            .map(|(name, value, origin)| Setting { name, value, source: origin.map(ToString::to_string) })
            .collect();
        // What they come to in the end.
        for line in &mut lines {
            match line.name {
                "store" => {
                    line.value = place.url.to_string();
                    match place.chosen {
                        ChosenBy::Flag | ChosenBy::Variable => line.source = Some(place.chosen.to_string()),
                        ChosenBy::Settings | ChosenBy::Default => {}
                    }
                }
                "access_file" => line.value = access.display().to_string(),
                _ => {}
            }
        }
        let report = ConfigReport { settings: lines };
        context.output.list(&report, &report.settings, "", || {
            let mut table = Table::new(["SETTING", "VALUE", "SOURCE"]);
            for setting in &report.settings {
                let source = match &setting.source {
                    Some(source) => Cell::from(source),
                    None => Cell::from("default").in_colour(Colour::Faint),
                };
                table.row([setting.name.into(), setting.value.as_str().into(), source]);
            }
            table
        })?;
        Ok(DONE)
    }
}
