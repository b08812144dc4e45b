//! Compensation: the effects of a job that failed or was called off are undone, last one first, one at a time.

use super::effect::{Effect, EffectState};

/// The effect to undo next; `None`: there is nothing (more) to undo, or an undo that failed stands in the way, or one is
/// under way.
pub fn next_to_undo(effects: &[Effect]) -> Option<&Effect> {
    let blocked =
        |effect: &Effect| matches!(effect.state, EffectState::Compensating | EffectState::CompensationFailed);
    if effects.iter().any(blocked) {
        return None;
    }
    effects
        .iter()
        .filter(|effect| effect.state == EffectState::Done && effect.compensation.is_some())
        .max_by_key(|effect| effect.position)
}

/// Whether nothing that can be undone is left.
pub fn stands_undone(effects: &[Effect]) -> bool {
    effects.iter().all(|effect| match effect.state {
        EffectState::Done => effect.compensation.is_none(),
        EffectState::Compensating | EffectState::CompensationFailed => false,
        EffectState::Intended(_) | EffectState::Compensated => true,
    })
}
