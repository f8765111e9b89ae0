"""From settings to objects, one file a role: the only place that knows which class a `type` names.

Importing it loads no model library; the file of a model's class is imported when such a model is asked for.
"""
