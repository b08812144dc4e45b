//! Effects that a person should know of: in doubt, to be undone, undone, or recorded by an attempt that is not the newest.

use std::sync::Arc;

use fencehold_contract::http::op;
use fencehold_contract::job::{
    EffectResolution, EffectView, FindingKind, ListEffectsRequest, ResolveEffectRequest,
};
use fencehold_contract::problem::Problem;
use fencehold_core::BadInput;
use fencehold_core::job::JobState;
use maud::{Markup, html};

use super::page::{Page, PageRequest, PageResponse, ROWS_MAX};
use super::{filter, layout, text};
use crate::http::job;

pub(super) async fn view(page: Arc<PageRequest>) -> Result<PageResponse, Problem> {
    let request = ListEffectsRequest { cursor: page.fields.read("cursor")?, limit: ROWS_MAX };
    let listed = page.call::<op::ListEffects>(request).await?;
    let main = html! {
        h1 { "Effects" }
        p class="muted" { "Effects of jobs that may or may not have happened, or that are undone or to be undone." }
        @if listed.effects.is_empty() && listed.next_cursor.is_none() {
            (layout::empty("No effect is in doubt, and none is to be undone.", None))
        } @else {
            (table(&page, &listed.effects))
        }
        (filter::pages(&page, "effects", listed.next_cursor, listed.effects.is_empty()))
    };
    let live_prefix = Some("job/".to_owned());
    Ok(Page { title: "Effects".to_owned(), section: "Effects", live_prefix, main }.into())
}

const fn finding_class(finding: FindingKind) -> &'static str {
    match finding {
        FindingKind::InDoubt => "expired",
        FindingKind::CompensationFailed => "revoked",
        FindingKind::CompensationPending => "waiting",
        _ => "quiet",
    }
}

fn table(page: &PageRequest, effects: &[EffectView]) -> Markup {
    html! {
        div class="scroll" { table class="list stacked" {
            thead { tr { th { "finding" } th { "effect" } th { "job" } th { "kind" } th { "queue" } th { "job is" } th class="number" { "token" } th { "written" } th { "undone by" } th { span class="visually-hidden" { "change" } } } }
            tbody {
                @for effect in effects {
                    tr {
                        td { (text::badge(finding_class(effect.finding), effect.finding.name())) }
                        td { (text::cell(effect.effect.as_str())) }
                        td data-label="job " { (filter::job(page, &effect.job_id.to_string())) }
                        td data-label="kind " { (text::cell(effect.kind.as_str())) }
                        td data-label="queue " { (text::cell(effect.queue.as_str())) }
                        td { (text::state(effect.job_state)) }
                        td class="number" { (text::token(effect.token)) }
                        td data-label="written " { (text::moment(page.now_ms, effect.written_at_ms)) }
                        @if let Some(id) = &effect.compensation_job_id { td data-label="undone by " { (filter::job(page, &id.to_string())) } } @else { td {} }
                        td { @if page.may::<op::ResolveEffect>() && effect.finding == FindingKind::InDoubt && effect.job_state != JobState::Running { (resolve_form(page, effect)) } }
                    }
                }
            }
        } }
    }
}

fn resolve_form(page: &PageRequest, effect: &EffectView) -> Markup {
    html! {
        details class="act small" id={ "resolve-" (effect.job_id) "-" (effect.effect) } {
            summary { "Resolve…" }
            form action=(page.href("resolve-effect", &[])) method="post" class="stack" {
                p { "Look where the effect would be seen, then say what you found." }
                (page.form_token())
                input type="hidden" name="id" value=(effect.job_id);
                input type="hidden" name="effect" value=(effect.effect);
                (page.by_field())
                label { "Its value, as JSON, if it happened" input name="value" value="null" spellcheck="false"; }
                div class="inline" {
                    button name="happened" value="yes" { "It happened" }
                    button name="happened" value="no" { "It did not happen" }
                }
            }
        }
    }
}

/// Says what became of an effect. It is refused if the effect is in doubt no more.
pub(super) async fn resolve(page: Arc<PageRequest>) -> Result<PageResponse, Problem> {
    let resolution = match page.fields.get("happened") {
        Some("yes") => {
            let value = page.fields.get("value").unwrap_or("null");
            let checked: Result<serde_json::Value, _> = serde_json::from_str(value);
            checked.map_err(|error| BadInput::new("value", format!("is not JSON: {error}")))?;
            EffectResolution::Happened { value: value.into() }
        }
        Some("no") => EffectResolution::DidNotHappen {},
        _ => return Err(BadInput::new("happened", "must be yes or no").into()),
    };
    let request = ResolveEffectRequest {
        job_id: page.fields.need("id")?,
        effect: page.fields.need("effect")?,
        resolution,
        by: page.by()?,
    };
    job::resolve_effect(page.context::<op::ResolveEffect>()?, request).await?;
    Ok(PageResponse::Goto(page.href("effects", &[])))
}
