"""Everything Celery: the application, its tasks, and what this package needs otherwise of its parts."""
