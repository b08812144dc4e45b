//! The cases of the lease contract, one file a theme. Each is named as the promise that it checks; its number stands
//! beside it (P: the promises; R: the races).
#![expect(
    clippy::unnecessary_wraps,
    reason = "every case has the same shape, also one that is always applicable"
)]

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

use super::Case;

/// Every case by theme, handed to a macro. The one list: the tests and the registry are both made from it, and a case
/// that is missing here is dead code.
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
                a_lease_is_live_until_its_deadline_and_over_at_it
                a_renewed_lease_is_live_until_its_new_deadline
                a_dead_holder_leaves_only_history
                a_hold_is_over_at_its_max_age_however_often_it_is_renewed
                a_max_age_below_the_ttl_counts_from_the_grant
                the_recorded_ttl_counts_not_a_contenders
                a_reused_owner_name_adopts_nothing
            }
            hold_id {
                the_same_hold_id_gets_the_same_lease_with_the_time_that_remains
                a_repetition_that_is_not_read_takes_nothing_away
                asking_again_does_not_move_the_deadline
                an_ended_hold_id_is_never_granted_again
                an_ended_hold_id_does_not_stand_in_line
                a_hold_id_older_than_the_history_is_refused
                a_hold_id_older_than_the_history_of_one_key_is_granted_no_other
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
                a_sweep_never_ends_a_lease_that_was_renewed_in_time
                a_stale_sweep_leaves_the_next_holder_alone
                a_stale_renewal_is_recorded
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
                a_revoked_key_goes_to_the_first_in_line
                a_holder_hears_of_its_revocation_at_once
                a_holder_hears_of_a_revocation_through_its_own_handle
            }
            limits {
                a_namespace_has_no_more_keys_than_its_limit
                a_ttl_above_the_longest_of_its_namespace_is_refused
                a_namespaces_own_limit_goes_before_that_of_every_namespace
            }
            rewound {
                a_token_that_was_never_given_is_refused_with_an_alarm
                a_token_of_an_unknown_key_is_refused_with_an_alarm
                a_token_that_was_given_is_no_alarm
                advance_ends_all_leases_and_lifts_all_counters
                advance_closes_the_store_for_the_longest_ttl
                advance_closes_a_namespace_for_its_own_longest_ttl
                what_advance_closed_can_be_opened_at_once
                a_closed_store_says_for_how_long
                after_an_advance_no_token_comes_twice
                a_hold_id_that_advance_ended_stays_ended
                advance_sends_those_in_line_home
                an_advance_past_the_cap_changes_nothing
                at_the_cap_nothing_is_granted_and_nothing_wraps
            }
            waiting {
                a_released_key_goes_to_one_who_waits
                a_key_that_runs_out_goes_to_one_who_waits
                those_in_line_are_served_in_order
                a_grant_says_how_long_the_request_stood_in_line
                a_try_never_passes_those_in_line
                a_waiter_whose_time_is_up_is_never_granted
                a_waiter_is_granted_until_its_time_is_up_and_not_at_it
                a_waiter_whose_time_ends_with_the_lease_is_refused
                one_that_leaves_the_line_is_passed_over
                a_grant_that_nobody_picks_up_is_freed_at_once
                the_hold_id_of_a_grant_that_nobody_picked_up_has_ended
                the_same_request_again_keeps_its_place_in_line
                one_that_asks_again_in_a_long_line_is_served
                time_stood_in_line_elsewhere_counts
                an_absurd_time_in_line_is_harmless
                higher_priority_stands_further_ahead
                a_waiter_that_asks_again_after_its_grant_has_its_lease
                a_waiter_for_several_keys_leaves_every_line_with_its_grant
            }
            preemption {
                a_holder_learns_at_its_renewal_for_whom_and_by_when
                renewals_get_only_the_remainder_until_the_yield_time
                a_notice_never_shortens_what_was_acknowledged
                a_holder_that_yields_makes_room_at_once
                nobody_yields_to_an_equal_or_to_one_who_does_not_ask
                a_notice_is_withdrawn_when_its_contender_leaves
                a_notice_is_withdrawn_when_its_contenders_time_is_up
                a_notice_is_withdrawn_when_its_contender_no_longer_waits
                the_highest_contender_asks_and_then_the_next
                the_time_to_yield_counts_from_when_the_contender_came
                a_higher_contender_does_not_put_off_the_time_to_yield
                a_contender_for_several_keys_asks_on_all_until_it_has_one
                a_holder_hears_at_once_that_it_is_to_yield
            }
            any_of {
                the_first_free_key_is_granted_and_n_slots_take_n_holders
                a_refusal_names_the_key_that_comes_free_first
                its_own_hold_is_found_on_any_key
                a_token_seen_on_the_first_key_says_nothing_of_the_others
                a_token_never_given_on_the_first_key_is_an_alarm
                a_hold_that_ended_on_one_key_is_granted_no_other
                the_first_key_that_comes_free_is_granted
                waiters_for_one_and_for_any_stand_in_one_line
            }
            list {
                a_list_shows_what_its_filters_ask_for
                free_keys_are_shown_to_who_asks_for_them
                a_list_says_what_get_says
                pages_show_every_key_exactly_once
                the_status_counts_keys_holds_and_waiters
            }
            events {
                events_tell_a_keys_story_in_order
                a_cursor_goes_on_where_it_was
                one_who_waits_is_told_when_something_happens
                one_who_has_waited_long_enough_gets_an_empty_page
                a_cursor_that_is_too_old_is_told_so
                a_cursor_ahead_of_the_store_is_refused
                a_collected_key_is_told_of
                no_namespace_pushes_out_the_events_of_another
            }
            collected {
                a_collected_key_goes_on_above_its_last_token
                a_floor_holds_for_every_key_of_its_namespace
                a_floor_never_sinks
                a_token_of_a_collected_key_is_no_alarm
                a_key_is_kept_while_a_hold_id_could_come_back
                a_held_key_is_never_collected
            }
            namespaces {
                the_same_key_in_two_namespaces_is_two_keys
                a_hold_of_another_namespace_is_refused
                a_hold_id_means_nothing_in_another_namespace
                events_of_another_namespace_are_not_told
            }
            input {
                a_ttl_out_of_bounds_is_refused
                a_max_age_out_of_bounds_is_refused
                a_time_over_its_limit_is_refused
                keys_that_are_none_too_many_or_doubled_are_refused
                a_page_out_of_bounds_is_refused
                a_batch_over_its_limit_is_refused_as_a_whole
                an_advance_by_nothing_is_refused
            }
            clocks {
                a_wall_clock_set_forward_ends_no_lease
                a_wall_clock_set_back_makes_no_lease_immortal
                a_wall_clock_that_jumps_touches_nobody_in_line
                a_mass_expiry_ends_all_and_starves_nobody
            }
            restart {
                a_closed_handle_says_that_it_is_closed
                a_live_lease_survives_a_restart
                a_lease_in_flight_ends_on_time_after_a_restart
                a_lease_that_ran_out_while_nobody_served_is_over
                a_renewed_deadline_survives_a_restart
                tokens_grow_over_a_restart
                an_ended_hold_id_stays_ended_over_a_restart
                history_survives_a_restart
                a_notice_does_not_outlive_the_line
                an_event_cursor_survives_a_restart
                a_floor_survives_a_restart
                an_advance_holds_over_a_restart
            }
            races {
                a_dead_lease_is_reclaimed_exactly_once
                a_new_key_is_taken_exactly_once
                the_same_request_many_times_at_once_gets_one_lease
                a_revocation_beats_renewals_under_way
                a_release_beats_heartbeats_under_way
                a_stale_release_never_hits_a_newcomer
                two_revocations_at_once_end_one_hold
                one_that_gives_up_leaves_no_orphan
                few_keys_pass_through_many_hands_one_at_a_time
            }
            secrets {
                no_hold_id_is_in_anything_that_is_given_back
            }
        }
    };
}

macro_rules! registry {
    ($($theme:ident { $($name:ident)* })*) => {
        pub(super) const CASES: &[Case] = &[
            $($(Case { theme: stringify!($theme), name: stringify!($name), check: $theme::$name },)*)*
        ];
    };
}

lease_cases!([registry]);

#[doc(hidden)]
#[macro_export]
macro_rules! lease_tests {
    ($($theme:ident { $($name:ident)* })*) => {
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
