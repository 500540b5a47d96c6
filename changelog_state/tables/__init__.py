"""Global tables as functions see them: settings, look-ups, joins."""
