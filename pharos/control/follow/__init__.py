"""What engines say on their own: log lines and events, followed as they come.

Forbidden here: keeping, logging or quoting a line or an event. Engine logs hold prompts; one callback sees each line,
then it is gone.
"""
