# Shortcuts for dev.py, which does all set-up by itself.
TASKS := demo test slow notebooks lint asan tsan oracle compilers fuzz bench format clean

.PHONY: help $(TASKS)
help:   ## what each target does
	@python3 dev.py help

$(TASKS):
	@python3 dev.py $@
