/*
 * Assertions in three levels, chosen by -DSQ_ASSERT_LEVEL (default 1):
 *   1 SQ_ASSERT           a precondition that costs nothing beside the work
 *   2 SQ_ASSERT_INTERNAL  an invariant worth a compare on a slow path
 *   3 SQ_ASSERT_EXPENSIVE walks a structure
 * Level 0 turns all of them off (benchmarks). A failed assertion is a bug of slabq
 * itself, never of its input: it prints one line and aborts.
 */
#ifndef SQ_ASSERT_H
#define SQ_ASSERT_H

#ifndef SQ_ASSERT_LEVEL
#define SQ_ASSERT_LEVEL 1
#endif

_Noreturn void sq_assert_fail(const char *expression, const char *file, int line);

#define SQ_ASSERT_ENABLED(level, expression)                                           \
    ((void)(!(SQ_ASSERT_LEVEL >= (level)) || (expression) ||                           \
            (sq_assert_fail(#expression, __FILE__, __LINE__), 0)))

#define SQ_ASSERT(expression)           SQ_ASSERT_ENABLED(1, expression)
#define SQ_ASSERT_INTERNAL(expression)  SQ_ASSERT_ENABLED(2, expression)
#define SQ_ASSERT_EXPENSIVE(expression) SQ_ASSERT_ENABLED(3, expression)

#endif
