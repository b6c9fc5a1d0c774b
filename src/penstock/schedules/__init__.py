"""PACKAGE DOC penstock.schedules"""
