//! The cases of the lease contract, one file a theme. Each is named as the promise that it checks; its number stands
//! beside it (P: the promises; R: the races).

mod acquire;
mod any_of;
mod clocks;
mod collected;
mod events;
mod force;
mod hold_id;
mod input;
mod limits;
mod list;
mod namespaces;
mod preemption;
mod races;
mod release;
mod renew;
mod restart;
mod rewound;
mod secrets;
mod waiting;

use super::{Case, need};

/// What all the cases speak of.
mod prelude {
    pub(super) use fencehold_contract::{
        AcquireLeaseRequest, EndingView, KeyContention, LeaseStore, ListContentionRequest, ListEventsRequest,
        ListLeasesRequest, Quota, ReleasedLease, RevokeLeasesRequest, RevokeTarget, RevokedLease, StoreError,
    };
    pub(super) use fencehold_core::lease::LeaseOutcome;
    pub(super) use fencehold_core::limits::{
        ADVANCE_BY, BATCH_MAX, COLLECT_AFTER_FREE_MS, EVENTS_KEPT, HISTORY_MAX, HOLD_AGE_MS_MAX,
        KEYS_PER_ACQUIRE_MAX, MAX_AGE_MS_MAX, PAGE_MAX, TOKEN_MAX, TTL_MS_MAX, WAIT_MS_MAX, YIELD_MS_MAX,
    };
    pub(super) use fencehold_core::{
        BadInput, BlockedAction, Event, EventData, HoldId, Key, Reason, Refusal, Token,
    };
    pub(super) use fencehold_test_store::TestCapability;

    pub(super) use crate::concurrent::{PendingCall, at_once};
    pub(super) use crate::fixture::{
        COVERED, Fixture, HeldLease, SECRETS, TASKS, assert_ended, assert_held_by, assert_lost,
        assert_no_secret_in, assert_superseded, key, key_for, keys, owner, refusal, task, until,
    };
}

/// Every case by theme, handed to a macro. The one list: the tests and the registry are both made from it, and a case
/// that is missing here is dead code. Behind its name stands what it needs (`need.rs`).
#[doc(hidden)]
#[macro_export]
macro_rules! lease_cases {
    ([$($then:tt)*]) => {
        $($then)*! {
            acquire {
                a_key_has_one_holder
                a_grant_says_how_long_it_lasts
                a_refusal_names_holder_task_time_and_token
                a_held_key_shows_its_holder
                tokens_grow_after_a_release
                tokens_grow_after_an_expiry
                tokens_grow_after_a_revocation_and_skip_what_it_consumed
                a_lease_is_live_until_its_deadline_and_over_at_it [MovesTime StandsStill]
                a_renewed_lease_is_live_until_its_new_deadline [MovesTime StandsStill]
                a_dead_holder_leaves_only_history
                a_hold_is_over_at_its_max_age_however_often_it_is_renewed [MovesTime StandsStill]
                a_max_age_below_the_ttl_counts_from_the_grant
                the_recorded_ttl_counts_not_a_contenders [MovesTime]
                a_reused_owner_name_adopts_nothing
            }
            hold_id {
                the_same_hold_id_gets_the_same_lease_with_the_time_that_remains
                a_repetition_that_is_not_read_takes_nothing_away
                asking_again_does_not_move_the_deadline [MovesTime]
                an_ended_hold_id_is_never_granted_again
                an_ended_hold_id_does_not_stand_in_line
                a_hold_id_older_than_the_history_is_refused [MovesTime]
                a_hold_id_older_than_the_history_of_one_key_is_granted_no_other [MovesTime]
                a_busy_key_goes_to_every_fresh_hold_id
                a_key_remembers_its_last_endings
            }
            renew {
                a_renewal_keeps_token_and_ttl
                many_renewals_are_answered_each_and_in_order
                a_renewal_never_revives_a_released_lease
                a_renewal_never_revives_an_expired_lease
                a_renewal_never_revives_a_revoked_lease
                a_late_renewal_steals_nothing_back
                a_renewal_needs_the_holders_own_id_and_token
                a_sweep_never_ends_a_lease_that_was_renewed_in_time [MovesTime]
                a_stale_sweep_leaves_the_next_holder_alone [MovesTime]
                a_stale_renewal_is_recorded [TellsEvents]
            }
            release {
                a_released_key_is_free_at_once
                the_same_release_gets_the_same_answer
                a_stale_release_leaves_the_newer_holder_untouched
                a_release_after_the_end_says_how_it_ended
                a_release_needs_the_holders_own_id
                many_releases_are_answered_each_and_in_order
            }
            force {
                a_revocation_ends_the_lease_and_consumes_a_token
                a_revocation_leaves_name_and_reason
                a_revocation_of_one_token_spares_every_other
                a_free_key_has_nothing_to_revoke
                a_revocation_after_the_end_never_finds_a_live_lease
                a_revocation_of_many_ends_exactly_those
                a_revocation_by_task_ends_those_below_it_and_spares_neighbours
                a_revoked_key_goes_to_the_first_in_line [WaitQueue]
                a_holder_hears_of_its_revocation_at_once [TellsHolders]
                a_holder_hears_of_a_revocation_through_its_own_handle
            }
            limits {
                a_namespace_has_no_more_keys_than_its_limit [Limits]
                a_ttl_above_the_longest_of_its_namespace_is_refused [Limits]
                a_namespaces_own_limit_goes_before_that_of_every_namespace [Limits]
            }
            rewound {
                a_token_that_was_never_given_is_refused_with_an_alarm
                a_token_of_an_unknown_key_is_refused_with_an_alarm
                a_token_that_was_given_is_no_alarm
                advance_ends_all_leases_and_lifts_all_counters [Advances]
                advance_closes_the_store_for_the_longest_ttl [Advances MovesTime StandsStill]
                advance_closes_a_namespace_for_its_own_longest_ttl [Advances Reopens]
                what_advance_closed_can_be_opened_at_once [Advances OpensEarly]
                a_closed_store_says_for_how_long [Advances Reopens]
                after_an_advance_no_token_comes_twice [Advances Reopens]
                a_hold_id_that_advance_ended_stays_ended [Advances Reopens]
                advance_sends_those_in_line_home [Advances WaitQueue]
                an_advance_past_the_cap_changes_nothing [Advances]
                at_the_cap_nothing_is_granted_and_nothing_wraps [Advances Reopens]
            }
            waiting {
                a_released_key_goes_to_one_who_waits [WaitQueue]
                a_key_that_runs_out_goes_to_one_who_waits [WaitQueue MovesTime]
                those_in_line_are_served_in_order [FairQueue]
                a_grant_says_how_long_the_request_stood_in_line [WaitQueue MovesTime]
                a_try_never_passes_those_in_line [FairQueue]
                a_waiter_whose_time_is_up_is_never_granted [WaitQueue MovesTime]
                a_waiter_is_granted_until_its_time_is_up_and_not_at_it [WaitQueue MovesTime StandsStill]
                a_waiter_whose_time_ends_with_the_lease_is_refused [WaitQueue MovesTime StandsStill]
                one_that_leaves_the_line_is_passed_over [WaitQueue NoticesLeaving]
                a_grant_that_nobody_picks_up_is_freed_at_once [WaitQueue NoticesLeaving]
                the_hold_id_of_a_grant_that_nobody_picked_up_has_ended [WaitQueue NoticesLeaving]
                the_same_request_again_keeps_its_place_in_line [FairQueue MovesTime]
                one_that_asks_again_in_a_long_line_is_served [FairQueue MovesTime]
                time_stood_in_line_elsewhere_counts [FairQueue]
                an_absurd_time_in_line_is_harmless [WaitQueue]
                higher_priority_stands_further_ahead [FairQueue]
                a_waiter_that_asks_again_after_its_grant_has_its_lease [WaitQueue]
                a_waiter_for_several_keys_leaves_every_line_with_its_grant [WaitQueue]
            }
            preemption {
                a_holder_learns_at_its_renewal_for_whom_and_by_when [Preemption]
                renewals_get_only_the_remainder_until_the_yield_time [Preemption MovesTime StandsStill]
                a_notice_never_shortens_what_was_acknowledged [Preemption MovesTime StandsStill]
                a_holder_that_yields_makes_room_at_once [Preemption]
                nobody_yields_to_an_equal_or_to_one_who_does_not_ask [Preemption]
                a_notice_is_withdrawn_when_its_contender_leaves [Preemption NoticesLeaving]
                a_notice_is_withdrawn_when_its_contenders_time_is_up [Preemption MovesTime]
                a_notice_is_withdrawn_when_its_contender_no_longer_waits [Preemption]
                the_highest_contender_asks_and_then_the_next [Preemption NoticesLeaving]
                the_time_to_yield_counts_from_when_the_contender_came [Preemption NoticesLeaving MovesTime]
                a_higher_contender_does_not_put_off_the_time_to_yield [Preemption]
                a_contender_for_several_keys_asks_on_all_until_it_has_one [Preemption]
                a_holder_hears_at_once_that_it_is_to_yield [Preemption TellsHolders]
            }
            any_of {
                the_first_free_key_is_granted_and_n_slots_take_n_holders
                a_refusal_names_the_key_that_comes_free_first
                its_own_hold_is_found_on_any_key
                a_token_seen_on_the_first_key_says_nothing_of_the_others
                a_token_never_given_on_the_first_key_is_an_alarm
                a_hold_that_ended_on_one_key_is_granted_no_other
                the_first_key_that_comes_free_is_granted [WaitQueue]
                waiters_for_one_and_for_any_stand_in_one_line [FairQueue]
            }
            list {
                a_list_shows_what_its_filters_ask_for
                a_list_by_task_shows_those_below_it_and_no_neighbours
                free_keys_are_shown_to_who_asks_for_them
                a_list_says_what_get_says
                pages_show_every_key_exactly_once
                the_status_counts_keys_holds_and_waiters
                the_statistics_count_how_leases_ended
                the_metrics_count_how_leases_ended [Counts]
                contention_tells_who_was_refused_and_how_long_the_line_was
                a_wait_that_was_in_vain_is_contention [WaitQueue]
                an_acquisition_of_any_of_several_keys_contends_for_each
            }
            events {
                events_tell_a_keys_story_in_order [TellsEvents]
                a_cursor_goes_on_where_it_was [TellsEvents]
                one_who_waits_is_told_when_something_happens [TellsEvents]
                events_by_task_are_of_those_below_it_and_no_neighbours [TellsEvents]
                one_who_waits_for_a_task_is_told_of_those_below_it [TellsEvents]
                one_who_has_waited_long_enough_gets_an_empty_page [TellsEvents MovesTime]
                a_cursor_that_is_too_old_is_told_so [TellsEvents]
                a_cursor_ahead_of_the_store_is_refused [TellsEvents]
                a_collected_key_is_told_of [TellsEvents Collects MovesTime]
                no_namespace_pushes_out_the_events_of_another [TellsEvents]
                a_write_that_was_refused_elsewhere_is_recorded_unless_its_holder_is_live [TellsEvents]
            }
            collected {
                a_collected_key_goes_on_above_its_last_token [Collects MovesTime]
                a_floor_holds_for_every_key_of_its_namespace [Collects MovesTime]
                a_floor_never_sinks [Collects MovesTime]
                a_token_of_a_collected_key_is_no_alarm [Collects MovesTime]
                a_key_is_kept_while_a_hold_id_could_come_back [MovesTime]
                a_held_key_is_never_collected [Collects MovesTime]
            }
            namespaces {
                the_same_key_in_two_namespaces_is_two_keys
                a_hold_of_another_namespace_is_refused
                a_hold_id_means_nothing_in_another_namespace
                events_of_another_namespace_are_not_told [TellsEvents]
            }
            input {
                a_ttl_out_of_bounds_is_refused
                a_max_age_out_of_bounds_is_refused
                a_time_over_its_limit_is_refused
                keys_that_are_none_too_many_or_doubled_are_refused
                a_page_out_of_bounds_is_refused
                a_batch_over_its_limit_is_refused_as_a_whole
                an_advance_by_nothing_is_refused [Advances]
            }
            clocks {
                a_wall_clock_set_forward_ends_no_lease [MovesWall]
                a_wall_clock_set_back_makes_no_lease_immortal [MovesWall MovesTime]
                a_wall_clock_that_jumps_touches_nobody_in_line [MovesWall WaitQueue]
                a_mass_expiry_ends_all_and_starves_nobody [MovesTime OwnClock]
            }
            restart {
                a_closed_handle_says_that_it_is_closed
                a_live_lease_survives_a_restart [Restarts]
                a_lease_in_flight_ends_on_time_after_a_restart [Restarts MovesTime]
                a_lease_that_ran_out_while_nobody_served_is_over [Restarts MovesTime OwnClock]
                a_renewed_deadline_survives_a_restart [Restarts MovesTime]
                tokens_grow_over_a_restart [Restarts]
                an_ended_hold_id_stays_ended_over_a_restart [Restarts]
                history_survives_a_restart [Restarts]
                a_notice_does_not_outlive_the_line [Restarts Preemption]
                an_event_cursor_survives_a_restart [Restarts TellsEvents]
                a_floor_survives_a_restart [Restarts Collects MovesTime]
                an_advance_holds_over_a_restart [Restarts Advances Reopens]
            }
            races {
                a_dead_lease_is_reclaimed_exactly_once
                a_new_key_is_taken_exactly_once
                the_same_request_many_times_at_once_gets_one_lease
                a_revocation_beats_renewals_under_way
                a_release_beats_heartbeats_under_way
                a_stale_release_never_hits_a_newcomer
                two_revocations_at_once_end_one_hold
                one_that_gives_up_leaves_no_orphan [WaitQueue NoticesLeaving]
                few_keys_pass_through_many_hands_one_at_a_time [WaitQueue]
            }
            secrets {
                no_hold_id_is_in_anything_that_is_given_back
            }
        }
    };
}

macro_rules! registry {
    ($($theme:ident { $($name:ident $([$($need:ident)*])?)* })*) => {
        pub(super) const CASES: &[Case] = &[
            $($(Case {
                theme: stringify!($theme),
                name: stringify!($name),
                needs: &[$($(&need::$need),*)?],
                check: $theme::$name,
            },)*)*
        ];
    };
}

lease_cases!([registry]);

#[doc(hidden)]
#[macro_export]
macro_rules! lease_tests {
    ($($theme:ident { $($name:ident $([$($need:ident)*])?)* })*) => {
        $(mod $theme {
            $(#[test]
            fn $name() {
                $crate::check(&super::conformance_factory(), stringify!($theme), stringify!($name));
            })*
        })*
    };
}

/// Makes one `#[test]` of every case of the lease contract, in one module a theme, run against the arenas of a
/// [`TestStoreFactory`](crate::TestStoreFactory).
#[macro_export]
macro_rules! lease_conformance {
    ($factory:expr) => {
        fn conformance_factory() -> impl $crate::TestStoreFactory {
            $factory
        }
        $crate::lease_cases!([$crate::lease_tests]);
    };
}
